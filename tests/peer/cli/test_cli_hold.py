"""`best-peer hold` and `release`: what is sent, who is named before and after, and how --while ends (F29)."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import peer.cli.hold
import peer.cli.processes
from peer.cli.processes import NoProcess, Process, find_process
from peer.cli.show import local_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.peer.cli.conftest import FakeDoor, Ran

HOLD = "hold-0123456789abcdefghijkl"
LOOK, TAKE, GIVE = "GET /admin/holds", "POST /admin/hold", "POST /admin/release"
SECONDS = 20.0
SOON = (datetime.now(UTC) + timedelta(days=2)).date().isoformat()


def held(device: str = "gpu-0", **more: Any) -> dict[str, Any]:
    return {"hold": HOLD, "device": device, "until": None, "reason": None, "now": False, **more}


def work(identifier: str = "dep-AbCdEfGhIjKl", **more: Any) -> dict[str, Any]:
    return {
        "workload": identifier,
        "what": "small",
        "device": "gpu-0",
        "holder": "h-123456789012",
        "name": "lab",
        "started": True,
        **more,
    }


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    assert peer.cli.hold.WHILE_SECONDS == 12 * 3600
    monkeypatch.setattr(peer.cli.hold, "STILL_SECONDS", 0.02)
    monkeypatch.setattr(peer.cli.hold, "AGAIN_SECONDS", 0.02)
    monkeypatch.setattr(peer.cli.hold, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(peer.cli.hold, "new_id", lambda: HOLD)


@pytest.fixture
def answering(door: FakeDoor) -> FakeDoor:
    """A door that holds gpu-0, on which one deployment runs."""
    door.answers[LOOK] = 200, {"devices": [{"id": "gpu-0"}], "holds": [held()], "work": [work()]}
    door.answers[TAKE] = 200, {"hold": HOLD, "held": [held()], "work": [work()], "still_running": []}
    door.answers[GIVE] = 200, {"released": [held()], "holds": []}
    return door


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs until its input is closed."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def asked(door: FakeDoor, route: str) -> list[Any]:
    """What was sent to a route, GETs without a body as None."""
    method, path = route.split()
    found = [r for r in door.requests if r.method == method and r.path.partition("?")[0] == path]
    return [r.json if r.body else None for r in found]


def when(door: FakeDoor, route: str, act: Callable[[], Any]) -> threading.Thread:
    """Do something once a route was asked, and nothing where it never is."""

    def wait() -> None:
        begun = time.monotonic()
        while not asked(door, route):
            if time.monotonic() - begun > SECONDS:
                return
            time.sleep(0.005)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def when_often(door: FakeDoor, route: str, times: int) -> None:
    """Wait until a route was asked so often."""
    begun = time.monotonic()
    while len(asked(door, route)) < times and time.monotonic() - begun < SECONDS:
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ([], {}),
        (["--for", "2h"], {"seconds": 7200}),
        (["--until", f"{SOON}T22:00:00+02:00"], {"until": f"{SOON}T20:00:00.000Z"}),
        (
            ["--device", "gpu-0", "--now", "--reason", "a  render"],
            {"device": "gpu-0", "now": True, "reason": "a  render"},
        ),
    ],
)
def test_what_is_asked_is_sent(
    answering: FakeDoor, cli: Callable[..., Ran], arguments: list[str], sent: dict[str, Any]
) -> None:
    ran = cli("hold", *arguments)
    assert (ran.code, ran.err) == (0, "")
    assert asked(answering, TAKE) == [{"hold": HOLD, "now": False, **sent}]


def test_who_is_affected_is_said_before_and_after(answering: FakeDoor, cli: Callable[..., Ran]) -> None:
    ran = cli("hold", "--reason", "x")
    assert ran.out.splitlines() == [
        "On gpu-0 now, which runs on:",
        "  dep-AbCdEfGh  small on gpu-0, key lab",
        "Held: gpu-0 takes no new work until best-peer release.",
        "Runs on: dep-AbCdEfGh.",
    ]
    assert [r.method for r in answering.requests] == ["GET", "POST"]


def test_a_hold_that_it_takes_the_place_of_is_named_before(
    answering: FakeDoor, cli: Callable[..., Ran]
) -> None:
    for_good = {"hold": "hold-for-good", "reason": "mine for good"}
    stands = [
        held(**for_good),
        held("gpu-1", hold="hold-other", until="2099-10-20T20:00:00.000Z"),
        held("cpu", **for_good),
    ]
    answering.answers[LOOK] = 200, {"devices": [{"id": "gpu-0"}], "replaces": stands, "work": []}
    assert cli("hold", "--for", "3").out.splitlines()[:3] == [
        "This replaces the hold on gpu-0 and cpu until it is released (mine for good).",
        f"This replaces the hold on gpu-1 until {local_time(datetime(2099, 10, 20, 20, tzinfo=UTC))}.",
        "Nothing runs on gpu-0.",
    ]


@pytest.mark.parametrize(("said", "words"), [("2", "for 2 s, "), ("2h", "for 2 h, "), (None, "")])
def test_how_long_it_lasts_is_said_as_it_was_understood(
    answering: FakeDoor, cli: Callable[..., Ran], said: str | None, words: str
) -> None:
    answering.answers[TAKE] = 200, {"held": [held(until="2099-10-20T20:00:00.000Z")], "work": []}
    until = local_time(datetime(2099, 10, 20, 20, tzinfo=UTC))
    options = ["--until", f"{SOON}T20:00Z"] if said is None else ["--for", said]
    line = cli("hold", *options).out.splitlines()[-1]
    assert line == f"Held: gpu-0 takes no new work {words}until {until}."


def test_with_now_each_is_said_to_have_ended_or_not(answering: FakeDoor, cli: Callable[..., Ran]) -> None:
    starting = work("job-StartingNow0", started=False, name=None)
    everything = [work(), work("job-Stubborn00000"), starting]
    answering.answers[LOOK] = (
        200,
        {"devices": [{"id": "gpu-0"}, {"id": "cpu"}], "holds": [], "work": everything},
    )
    answering.answers[TAKE] = (
        200,
        {
            "held": [
                held(reason="maintenance", until="2099-10-20T20:00:00.000Z"),
                held("cpu", reason="maintenance", until="2099-10-20T20:00:00.000Z"),
            ],
            "work": everything,
            "still_running": ["job-Stubborn00000"],
        },
    )
    lines = cli("hold", "--now").out.splitlines()
    assert lines[0] == "On gpu-0 and cpu now, which ends:"
    assert lines[3] == "  job-Starting  small on gpu-0, holder h-12345678, not started yet"
    assert lines[4].startswith("Held: gpu-0 and cpu take no new work until 2099-10-2")
    assert lines[4].endswith(" (maintenance).")
    assert lines[5] == "Ended, and their holders told: dep-AbCdEfGh."
    assert lines[6].startswith(
        "Still running: job-Stubborn. The peer goes on trying to end it; best-peer status "
    )
    assert lines[7:] == ["Not started yet: job-Starting. It ends as soon as it starts, if this holds then."]


def test_with_json_there_is_one_object_and_nothing_else(answering: FakeDoor, cli: Callable[..., Ran]) -> None:
    ran = cli("hold", "--json")
    assert ran.json["hold"] == HOLD
    assert ran.err == ""
    assert asked(answering, LOOK) == []
    assert cli("release", "--json").json == {"released": [held()], "holds": []}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--for", "2h", "--until", "2099-01-01T00:00Z"], "not both"),
        (["--for", "soon"], "expected"),
        (["--for", "0"], "at least"),
        (["--for", "367d"], "within 366 days"),
        (["--until", "tonight"], "2026-10-20T22:00:00Z"),
        (["--while", "0"], "expected the number of a process"),
        (["--while", "-1"], "expected the number of a process"),
        (["--while", "4194305"], "expected the number of a process"),
        (["gpu-0"], "too many"),
        (["--until", "2020-10-20T22:00:00Z"], "until is past already"),
        (["--until", "3020-10-20T22:00:00Z"], "a hold ends within 366 days"),
        (["--reason", "x" * 201], "200 characters at most, and this has 201; say it shorter"),
        (["--reason", "a\x1b[2Jb"], "this has U+001B; leave that out"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_sent(
    answering: FakeDoor, cli: Callable[..., Ran], arguments: list[str], words: str
) -> None:
    ran = cli("hold", *arguments)
    assert (ran.code, ran.out) == (1, "")
    assert words in ran.line
    assert answering.requests == []


def test_a_refusal_of_the_door_is_its_own_words(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    door.answers[LOOK] = 422, {"error": {"code": "UNKNOWN_DEVICE", "message": "there is no device x"}}
    ran = cli("hold", "--device", "x")
    assert (ran.code, ran.line) == (1, "best-peer: there is no device x (UNKNOWN_DEVICE)")


def test_release_says_what_takes_work_again_and_what_is_held_still(
    answering: FakeDoor, cli: Callable[..., Ran]
) -> None:
    assert cli("release").out == "Released: gpu-0 takes work again.\n"
    answering.answers[GIVE] = 200, {"released": [], "holds": [held("cpu")]}
    assert cli("release", "--device", "gpu-0").out == "Nothing was held.\nHeld still: cpu.\n"
    assert asked(answering, GIVE) == [{}, {"device": "gpu-0"}]


def test_a_hold_by_while_is_released_when_the_process_has_ended(
    answering: FakeDoor, cli: Callable[..., Ran], child: subprocess.Popen[bytes]
) -> None:
    """Its own hold alone, and twelve hours at most (easily missed 6)."""
    assert child.stdin is not None
    ends = when(answering, TAKE, child.stdin.close)
    ran = cli("hold", "--while", str(child.pid))
    ends.join()
    assert (ran.code, ran.err) == (0, "")
    assert asked(answering, TAKE) == [{"hold": HOLD, "now": False, "seconds": 43_200}]
    assert asked(answering, GIVE) == [{"hold": HOLD}]
    assert ran.out.splitlines()[-2:] == [
        f"That is while process {child.pid} (cat) runs; Ctrl-C releases.",
        "The process has ended. Released: gpu-0.",
    ]


@pytest.mark.parametrize(
    ("option", "sent"),
    [
        (["--for", "1h"], {"seconds": 3600}),
        (["--until", f"{SOON}T00:00Z"], {"until": f"{SOON}T00:00:00.000Z"}),
    ],
)
def test_an_end_that_is_said_takes_the_place_of_twelve_hours(
    answering: FakeDoor,
    cli: Callable[..., Ran],
    child: subprocess.Popen[bytes],
    option: list[str],
    sent: dict[str, Any],
) -> None:
    assert child.stdin is not None
    ends = when(answering, TAKE, child.stdin.close)
    cli("hold", "--while", str(child.pid), *option)
    ends.join()
    assert asked(answering, TAKE) == [{"hold": HOLD, "now": False, **sent}]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_releases_and_is_no_failure(
    answering: FakeDoor, cli: Callable[..., Ran], child: subprocess.Popen[bytes], number: int
) -> None:
    sends = when(answering, TAKE, lambda: os.kill(os.getpid(), number))
    ran = cli("hold", "--while", str(child.pid))
    sends.join()
    assert ran.code == 0
    assert asked(answering, GIVE) == [{"hold": HOLD}]
    assert child.poll() is None


def test_a_release_in_another_terminal_ends_it_with_a_line(
    answering: FakeDoor, cli: Callable[..., Ran], child: subprocess.Popen[bytes]
) -> None:
    released = when(
        answering, TAKE, lambda: answering.answers.update({LOOK: (200, {"devices": [], "holds": []})})
    )
    ran = cli("hold", "--while", str(child.pid))
    released.join()
    assert ran.code == 0
    assert "released elsewhere" in ran.out.splitlines()[-1]
    assert asked(answering, GIVE) == []


def test_a_peer_that_does_not_answer_meanwhile_is_said_once_and_asked_again(
    answering: FakeDoor, cli: Callable[..., Ran], child: subprocess.Popen[bytes]
) -> None:
    assert child.stdin is not None
    broken = 503, {"error": {"code": "LOG_UNAVAILABLE", "message": "not now"}}

    def end() -> None:
        answering.answers.update({LOOK: broken, GIVE: broken})
        when_often(answering, LOOK, 5)
        child.stdin.close()  # type: ignore[union-attr]
        when_often(answering, GIVE, 3)
        answering.answers[GIVE] = 200, {"released": [held()], "holds": []}

    ends = when(answering, TAKE, end)
    ran = cli("hold", "--while", str(child.pid))
    ends.join()
    assert ran.code == 0
    assert ran.out.count("The hold is kept") == 1
    assert ran.out.endswith("The process has ended. Released: gpu-0.\n")


def test_a_release_that_never_succeeds_says_what_to_do(
    answering: FakeDoor,
    cli: Callable[..., Ran],
    child: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peer.cli.hold, "RELEASE_SECONDS", 0.05)
    answering.answers[GIVE] = 503, {"error": {"code": "NO_ROOM", "message": "gpu-0 is still held"}}
    assert child.stdin is not None
    ends = when(answering, TAKE, child.stdin.close)
    ran = cli("hold", "--while", str(child.pid))
    ends.join()
    assert ran.code == 2
    assert "the hold is not released: best-peer release ends it" in ran.line


def test_a_hold_whose_answer_is_lost_is_not_left_with_nobody_watching(
    answering: FakeDoor, cli: Callable[..., Ran], child: subprocess.Popen[bytes]
) -> None:
    """It may be held, or will be as soon as the disk answers, for twelve hours."""
    answering.answers[TAKE] = 503, {"error": {"code": "LOG_UNAVAILABLE", "message": "not answered yet"}}
    ran = cli("hold", "--while", str(child.pid))
    assert ran.code == 2
    assert "not answered yet" in ran.line
    assert asked(answering, GIVE) == [{"hold": HOLD}]
    assert ran.out.splitlines()[-1] == "Released: gpu-0."


def test_a_hold_that_was_not_asked_for_is_not_released(
    answering: FakeDoor, cli: Callable[..., Ran], child: subprocess.Popen[bytes]
) -> None:
    answering.answers[LOOK] = 503, {"error": {"code": "LOG_UNAVAILABLE", "message": "not now"}}
    assert cli("hold", "--while", str(child.pid)).code == 2
    assert asked(answering, TAKE) == asked(answering, GIVE) == []


def test_a_process_that_is_not_there_is_refused(answering: FakeDoor, cli: Callable[..., Ran]) -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait(SECONDS)
    ran = cli("hold", "--while", str(gone.pid))
    assert (ran.code, answering.requests) == (1, [])
    assert f"no process {gone.pid} runs" in ran.line


def test_elsewhere_than_on_linux_it_says_what_to_use(
    answering: FakeDoor, cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    ran = cli("hold", "--while", str(os.getpid()))
    assert (ran.code, answering.requests) == (1, [])
    assert "hold with --for or --until and end it with best-peer release" in ran.line


def test_a_process_is_known_by_its_number_and_when_it_began(child: subprocess.Popen[bytes]) -> None:
    process = find_process(child.pid)
    assert process.name == "cat"
    assert process.runs()
    assert not Process(child.pid, process.started + 1, "cat").runs()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not process.runs(), "what has ended and was not waited for runs no more"


@pytest.mark.parametrize("name", ["a (b) c) S 1", "x)", "\n"])
def test_a_name_that_looks_like_fields_misleads_nobody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    fields = ["R", *map(str, range(18)), "777", "0"]
    (tmp_path / "5").mkdir()
    (tmp_path / "5" / "stat").write_text(f"5 ({name}) {' '.join(fields)}\n")
    monkeypatch.setattr(peer.cli.processes, "_PROC", tmp_path)
    assert find_process(5) == Process(5, 777, name)
    (tmp_path / "5" / "stat").write_text("5 (")
    with pytest.raises(NoProcess):
        find_process(5)
