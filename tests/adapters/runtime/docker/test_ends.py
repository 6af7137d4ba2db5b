"""How a container's end is read from what the engine kept."""

from datetime import UTC, datetime
from typing import Any

import pytest

from adapters.runtime.docker.ends import Asked, exit_of, is_by_signal, moment, stamp, was_running_at_boot
from adapters.runtime.port import Exit

STARTED = "2026-11-29T22:19:44.559217072Z"
ENDED = "2026-11-29T22:19:45.644586784Z"
TOLD = "2026-11-29T22:19:45.644Z"


def state(code: int | None, **more: Any) -> dict[str, Any]:
    return {"ExitCode": code, "OOMKilled": False, "StartedAt": STARTED, "FinishedAt": ENDED, **more}


@pytest.mark.parametrize("code", [0, 1, 137, 139, 143, 255])
def test_a_code_is_told_as_it_is(code: int) -> None:
    assert exit_of(state(code), b"so long\n") == Exit(code, ("so long",), ended_at=TOLD)


def test_memory_that_ran_out_is_known_by_the_mark_and_the_kill_together() -> None:
    assert exit_of(state(137, OOMKilled=True), b"").out_of_memory
    assert exit_of(state(137), b"", told_of_memory=True).out_of_memory
    assert not exit_of(state(137), b"").out_of_memory


@pytest.mark.parametrize("code", [0, 1, 143])
def test_a_program_that_went_on_lost_a_process(code: int) -> None:
    ended = exit_of(state(code, OOMKilled=True), b"")

    assert ended.lost_process
    assert not ended.out_of_memory


def test_a_program_that_this_peer_killed_did_not_end_for_want_of_memory() -> None:
    ended = exit_of(state(137, OOMKilled=True), b"", asked=Asked(to_end=True, was_killed=True))

    assert ended.lost_process
    assert not ended.out_of_memory


def test_one_that_was_only_asked_to_end_may_have_ended_so() -> None:
    assert exit_of(state(137, OOMKilled=True), b"", asked=Asked(to_end=True)).out_of_memory


@pytest.mark.parametrize(
    ("code", "output", "is_missing"),
    [
        (127, b"[FATAL tini (7)] exec /bin/nope failed: No such file or directory\n", True),
        (126, b"[FATAL tini (12)] exec /etc/passwd failed: Permission denied\n", True),
        (127, b"sh: nope: not found\n", False),
        (127, b"hello\n[FATAL tini (7)] exec /bin/nope failed: No such file or directory\n", False),
        (1, b"[FATAL tini (7)] exec /bin/nope failed: No such file or directory\n", False),
        (127, b"", False),
    ],
)
def test_a_command_is_missing_when_init_says_so_and_nothing_else(
    code: int, output: bytes, is_missing: bool
) -> None:
    assert exit_of(state(code), output).not_found is is_missing


def test_what_its_machine_went_down_under_has_no_code() -> None:
    booted = datetime(2026, 11, 29, 23, 0, tzinfo=UTC)

    assert exit_of(state(255), b"x", booted=booted) == Exit(None, ("x",), interrupted=True)
    assert exit_of(state(255), b"x", booted=datetime(2026, 11, 29, 22, 0, tzinfo=UTC)).code == 255


def test_an_end_that_the_engine_brought_is_interrupted() -> None:
    assert exit_of(state(143), b"", went_down=True) == Exit(143, interrupted=True, ended_at=TOLD)
    assert not exit_of(state(143), b"", went_down=True, asked=Asked(to_end=True)).interrupted
    assert not exit_of(state(137, OOMKilled=True), b"", went_down=True).interrupted


@pytest.mark.parametrize(
    ("code", "signal", "is_so"),
    [
        (137, "SIGTERM", True),
        (143, "SIGTERM", True),
        (131, "SIGQUIT", True),
        (131, "quit", True),
        (131, "3", True),
        (143, "SIGQUIT", False),
        (143, "SIGNONSENSE", True),
        (0, "SIGTERM", False),
        (255, "SIGTERM", False),
    ],
)
def test_an_engine_ends_a_container_by_its_stop_signal_or_by_a_kill(
    code: int, signal: str, is_so: bool
) -> None:
    assert is_by_signal(state(code), signal) is is_so


def test_what_stood_before_the_last_lines_is_kept() -> None:
    ended = exit_of(state(1), b"".join(b"line %d\n" % n for n in range(1000)))

    assert ended.output == tuple(f"line {n}" for n in range(980, 1000))
    assert ended.before == tuple(f"line {n}" for n in range(580, 980))


def test_times_are_read_as_engines_write_them() -> None:
    read = moment(ENDED)
    assert read is not None
    assert stamp(read) == TOLD
    assert moment("2026-11-29T23:19:45+01:00") == datetime(2026, 11, 29, 22, 19, 45, tzinfo=UTC)
    for never in ("0001-01-01T00:00:00Z", "", None, 7, "soon", "2026-11-29T22:19:45"):
        assert moment(never) is None


def test_what_began_before_the_machine_did_ran_at_its_end() -> None:
    booted = datetime(2026, 11, 29, 22, 19, 45, tzinfo=UTC)

    assert was_running_at_boot(state(143), booted)
    assert not was_running_at_boot(state(143), None)
    assert not was_running_at_boot({}, booted)
    assert exit_of({}, b"") == Exit(None)
