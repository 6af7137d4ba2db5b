"""`best-peer events`: what happened, in order, filtered, followed; never what was asked or answered (F4)."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import msgspec
import pytest

import peer.cli.events
from actors.messages import events as e
from actors.messages.envelope import EnvelopeEncoder, Fact, Head
from peer.cli.eventfiles import EventFiles, Place
from peer.cli.eventlines import person_line, without_content
from peer.cli.events import View, Wanted, follow

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peer.cli.conftest import Ran

SECRET = "what was asked and answered"
DEPLOYMENT = "dep-AbCdEfGhIjKlMnOpQrStUv"
JOB = "job-AbCdEfGhIjKlMnOpQrStUv"
HOLDER = "h-1234567890123456789012"
NOON = int(datetime(2026, 10, 19, 12, tzinfo=UTC).timestamp() * 1000)
ENCODER = EnvelopeEncoder("urn:best-peer:p-test", {})

STARTED = e.DeploymentStarted(DEPLOYMENT, "smollm2", "llamacpp", "cpu", "cpu", 1 << 30, "process", HOLDER)
ANSWERED = e.PromptAnswered(DEPLOYMENT, SECRET, "smollm2", 18, None, "stop")
REFUSED = e.PromptFailed(DEPLOYMENT, "PROMPT_REFUSED", f"the engine does not like {SECRET}", "say less")


def line(event: Any, seq: int = 0, correlation: str = "c-1", ms: int = NOON) -> bytes:
    return ENCODER.line(Fact(event, HOLDER, correlation, "cmd-1"), seq, ms)


def tell(data: Path, *lines: bytes, day: str = "2026-10-19") -> Path:
    path = data / "events" / f"{day}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(b"".join(each + b"\n" for each in lines))
    return path


def ids(ran: Ran) -> list[str]:
    return [json.loads(text)["id"] for text in ran.out.splitlines()]


def test_a_person_reads_time_type_workload_and_what_matters(
    data: Path, cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(data, line(STARTED), line(e.WeightsLoading(DEPLOYMENT, 40)), line(e.Undeployed(DEPLOYMENT)))
    ran = cli("events")
    local = datetime.fromtimestamp(NOON / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    assert ran.out.splitlines() == [
        f"{local}  DeploymentStarted   dep-AbCdEfGh  h-12345678  smollm2 by llamacpp on cpu, 1 GiB promised",
        f"{local}  WeightsLoading      dep-AbCdEfGh  h-12345678  40 % loaded",
        f"{local}  Undeployed          dep-AbCdEfGh  h-12345678  ended by command",
    ]
    assert (ran.code, ran.err) == (0, "")


EVENTS = (
    STARTED,
    ANSWERED,
    REFUSED,
    e.ImagePulling("ollama/ollama:0.40.6", 40, 3 << 20, deployment=DEPLOYMENT),
    e.ImagePulled("ollama/ollama:0.40.6", None, held=True, deployment=DEPLOYMENT),
    e.WeightsLoading(DEPLOYMENT),
    e.DeploymentReady(DEPLOYMENT, "smollm2", "llamacpp", "cpu", 4096, 1234, "it runs on the CPU"),
    e.DeploymentFailed(DEPLOYMENT, "MODEL_UNUSABLE", "it is none", "take another", 1, ("out",)),
    e.DeploymentEnded(DEPLOYMENT, "its engine ended", 137, ("out",)),
    e.OutOfMemory(DEPLOYMENT, "no memory", "promise more", None),
    e.Undeployed(DEPLOYMENT),
    e.JobStarted(JOB, "busybox", True, "container", HOLDER, "cpu", "cpu", 1 << 30, 4 << 30),
    e.JobFinished(JOB, 3, ("it said this",), note="a process of it was ended"),
    e.JobFailed(JOB, "OUT_OF_MEMORY", "it reached its ceiling", "use less", 137, ("out",)),
    e.JobStopped(JOB, "it was stopped before it started"),
    e.CommandFailed("cmd-1", "Prompt", "INTERNAL", "it broke", "send it again"),
    e.AgentRevoked(HOLDER, "lab"),
    e.DeviceHeldV1("hold-1", "gpu-0", "GPU-0", True, False, "2026-10-20T22:00:00.000Z", "maintenance"),
    e.DeviceReleasedV1("hold-1", "gpu-0", "GPU-0", "ended"),
)


def test_every_event_of_this_release_has_words(data: Path, cli: Callable[..., Ran]) -> None:
    assert {type(each) for each in EVENTS} == set(get_args(e.Event))
    tell(data, *(line(each) for each in EVENTS))
    lines = cli("events").out.splitlines()
    assert len(lines) == len(EVENTS)
    for event, text in zip(EVENTS, lines, strict=True):
        assert type(event).__name__ in text
        assert "=" not in text, "words, not fields"


def test_a_job_is_told_by_where_it_ran_and_how_it_ended(data: Path, cli: Callable[..., Ran]) -> None:
    """What it printed is its holder's: only how much is told of it."""
    events = (
        e.JobStarted(JOB, "busybox", False, "container", HOLDER),
        e.JobStarted(JOB, "busybox", True, "container", HOLDER, "gpu-0", "GPU-1", 1 << 30),
        e.JobFinished(JOB, 0, (SECRET,)),
        e.JobFinished(JOB, 137, (SECRET, "x"), note="most often a kill"),
        e.JobFailed(JOB, "OUT_OF_MEMORY", "it reached its ceiling", "use less", 137, (SECRET,)),
        e.JobFinished(JOB, 0, (SECRET,) * 20),
        e.JobStopped(JOB, output=(SECRET,)),
        e.JobStopped(JOB, "its credential was taken back"),
    )
    tell(data, *(line(each) for each in events))
    out = cli("events").out
    words = [text.partition("h-12345678")[2].strip() for text in out.splitlines()]
    assert words == [
        "busybox without a device, its box open",
        "busybox on gpu-0, 1 GiB promised, in the closed box",
        "exit code 0, 1 line of output",
        "exit code 137, 2 lines of output; most often a kill",
        "OUT_OF_MEMORY: it reached its ceiling; use less (exit code 137)",
        "exit code 0, the last 20 lines of its output",
        "stopped, 1 line of output",
        "stopped, 0 lines of output; its credential was taken back",
    ]
    assert "job-AbCdEfGh" in out
    assert SECRET not in out


def test_a_pull_is_told_in_the_figures_that_are_known(data: Path, cli: Callable[..., Ran]) -> None:
    events = (
        e.ImagePulling("a/b:1"),
        e.ImagePulling("a/b:1", fetched_bytes=3 << 20),
        e.ImagePulling("a/b:1", 40, 3 << 20),
        e.ImagePulling("a/b:1", 100),
        e.ImagePulled("a/b:1", None, held=False),
        e.ImagePulled("a/b:1", None, held=True),
    )
    tell(data, *(line(each) for each in events))
    words = [text.partition("h-12345678")[2].strip() for text in cli("events").out.splitlines()]
    assert words == [
        "a/b:1 is being fetched",
        "a/b:1 is being fetched, 3 MiB so far",
        "a/b:1 is being fetched, 40 %, 3 MiB so far",
        "a/b:1 is whole",
        "a/b:1 is here",
        "a/b:1 was here already",
    ]


FIX = "fetch it by hand (docker login, docker pull) " + "and look again " * 40 + "with BEST_PEER_PULL=missing"
NOT_FOUND = e.DeploymentFailed(DEPLOYMENT, "IMAGE_NOT_FOUND", "the registry has no such image", FIX)


def test_what_is_to_be_done_is_never_cut(data: Path, cli: Callable[..., Ran]) -> None:
    tell(data, line(NOT_FOUND))
    assert cli("events").out.endswith(f"IMAGE_NOT_FOUND: the registry has no such image; {FIX}\n")


@pytest.mark.parametrize("width", [40, 80, 120])
def test_on_a_terminal_long_words_go_on_below(width: int) -> None:
    fact = line(NOT_FOUND)
    head = msgspec.json.decode(fact, type=Head)
    lines = person_line(head, json.loads(fact)["data"], width).splitlines()
    assert max(map(len, lines[1:])) <= width
    assert " ".join(part.strip() for part in lines).endswith(FIX)
    short = line(e.Undeployed(DEPLOYMENT))
    head = msgspec.json.decode(short, type=Head)
    assert len(person_line(head, json.loads(short)["data"], 100).splitlines()) == 1


def test_no_content_of_a_conversation_is_shown(data: Path, cli: Callable[..., Ran]) -> None:
    tell(data, line(ANSWERED), line(REFUSED))
    for ran in (cli("events"), cli("events", "--json"), cli("events", "--limit", "9", "--json")):
        assert SECRET not in ran.out
    answered, refused = (json.loads(text)["data"] for text in ran.out.splitlines())
    assert answered["content_length"] == len(SECRET)
    assert "content" not in answered
    assert refused["reason_length"] == len(REFUSED.reason)
    assert refused["code"] == "PROMPT_REFUSED"
    assert f"{len(SECRET)} characters" in cli("events").out


def test_what_another_release_tells_of_prompts_is_hidden_too() -> None:
    data = {"deployment": "dep-1", "thoughts": SECRET, "turns": [{"content": SECRET}], "prompt_tokens": 3}
    assert without_content("PromptThought", data) == {
        "deployment": "dep-1",
        "thoughts_length": len(SECRET),
        "turns_length": len(json.dumps(data["turns"])),
        "prompt_tokens": 3,
    }
    assert SECRET not in str(without_content("ImageAnswered", {"content": SECRET, "messages": [SECRET]}))


def test_an_event_nobody_here_knows_is_shown_by_its_fields(data: Path, cli: Callable[..., Ran]) -> None:
    unknown = {
        "id": "evt-1", "type": "JobQueued", "time": "2026-10-19T12:00:00Z", "source": "",
        "data": {"job": "job-AbCdEfGhIj", "image": "busybox", "boxed": True, "devices": ["cpu"]},
    }  # fmt: skip
    odd = {**unknown, "type": "DeploymentReady", "data": {"model": 7}, "time": "never"}
    tell(data, json.dumps(unknown).encode(), json.dumps(odd).encode())
    first, second = cli("events").out.splitlines()
    assert "job-AbCdEfGh" in first
    assert "image=busybox boxed=True" in first
    assert second.startswith("never")


def test_nothing_an_agent_wrote_acts_on_the_terminal(data: Path, cli: Callable[..., Ran]) -> None:
    evil = "\x1b]0;owned\x07\x9b31m\u202e[red]"
    tell(data, line(e.AgentRevoked(HOLDER, evil), correlation=evil))
    for ran in (cli("events"), cli("events", "--json")):
        assert all(c.isprintable() or c == "\n" for c in ran.out)
    assert json.loads(ran.out)["data"]["name"] == evil


def test_json_is_the_log_line_by_line(data: Path, cli: Callable[..., Ran]) -> None:
    tell(data, line(STARTED, 0), line(e.Undeployed(DEPLOYMENT), 1))
    ran = cli("events", "--json")
    assert [json.loads(text) for text in ran.out.splitlines()] == [
        json.loads(line(STARTED, 0)),
        json.loads(line(e.Undeployed(DEPLOYMENT), 1)),
    ]


def test_filters_hold_together(data: Path, cli: Callable[..., Ran]) -> None:
    tell(
        data,
        line(STARTED, 0, "c-1"),
        line(STARTED, 1, "c-2"),
        line(e.Undeployed(DEPLOYMENT), 2, "c-2"),
        line(e.Undeployed(DEPLOYMENT), 3, "c-2", NOON + 60_000),
    )
    assert ids(cli("events", "--json", "--type", "DeploymentStarted")) == ["evt-0", "evt-1"]
    assert ids(cli("events", "--json", "--type", "Undeployed,DeploymentStarted")) == [
        f"evt-{n}" for n in range(4)
    ]
    assert ids(cli("events", "--json", "--correlation", "c-2")) == ["evt-1", "evt-2", "evt-3"]
    assert ids(cli("events", "--json", "--since", "2026-10-19T12:00:30Z")) == ["evt-3"]
    assert ids(cli("events", "--json", "--correlation", "c-2", "--type", "Undeployed", "--limit", "1")) == [
        "evt-3"
    ]
    assert ids(cli("events", "--json", "--limit", "2")) == ["evt-2", "evt-3"]


def test_since_takes_a_time_of_this_zone_and_how_long_ago(data: Path, cli: Callable[..., Ran]) -> None:
    now = datetime.now(UTC)
    recent = now - timedelta(minutes=10)
    tell(data, line(STARTED, 0))
    tell(data, line(STARTED, 1, ms=int(recent.timestamp() * 1000)), day=recent.strftime("%Y-%m-%d"))
    assert ids(cli("events", "--json", "--since", "1h")) == ["evt-1"]
    assert ids(cli("events", "--json", "--since", "5m")) == []
    an_hour_ago = (now - timedelta(hours=1)).astimezone().replace(tzinfo=None)
    assert ids(cli("events", "--json", "--since", an_hour_ago.isoformat())) == ["evt-1"]
    ran = cli("events", "--since", "yesterday")
    assert ran.code == 1
    assert "--since yesterday is refused: expected a time" in ran.line


def test_a_file_of_a_day_before_is_not_even_opened(data: Path, cli: Callable[..., Ran]) -> None:
    tell(data, line(STARTED, 0), day="2026-10-18").chmod(0)
    tell(data, line(STARTED, 1))
    assert ids(cli("events", "--json", "--since", "2026-10-19T00:00:00Z")) == ["evt-1"]


def test_a_data_folder_that_is_not_there_is_said_to_be(
    data: Path, monkeypatch: pytest.MonkeyPatch, cli: Callable[..., Ran]
) -> None:
    monkeypatch.setenv("BEST_PEER_DATA", str(data / "mistyped"))
    ran = cli("events")
    assert (ran.code, ran.out) == (0, "")
    assert f"there is no {data / 'mistyped'}." in ran.line


def test_empty_states_are_words_on_stderr(data: Path, cli: Callable[..., Ran]) -> None:
    data.mkdir()
    ran = cli("events")
    assert (ran.code, ran.out) == (0, "")
    assert ran.line.endswith(f"Nothing was told yet in {data}.")
    tell(data, line(STARTED))
    ran = cli("events", "--correlation", "other", "--json")
    assert (ran.code, ran.out) == (0, "")
    assert "No such event" in ran.line


def test_a_type_that_is_none_is_refused_with_those_near_it(data: Path, cli: Callable[..., Ran]) -> None:
    tell(data, line(STARTED))
    ran = cli("events", "--type", "DeploymentStart")
    assert (ran.code, ran.out) == (1, "")
    assert "--type DeploymentStart is refused: no event is called that; did you mean" in ran.line
    ran = cli("events", "--type", "Undeployed,Xyz")
    assert ran.code == 1
    assert "there are AgentRevoked, " in ran.line


def test_lines_that_are_no_events_are_counted_and_left_out(data: Path, cli: Callable[..., Ran]) -> None:
    tell(data, line(STARTED, 0), b"\0\0\0", b'{"id": 7}', b"\xff", line(STARTED, 1))
    ran = cli("events", "--json")
    assert ids(ran) == ["evt-0", "evt-1"]
    assert ran.line == "3 lines of the log are no events and are left out"


@pytest.mark.parametrize("limit", ["0", "-1", "x", "100001", "9999999"])
def test_a_limit_out_of_bounds_is_refused(data: Path, cli: Callable[..., Ran], limit: str) -> None:
    ran = cli("events", "--limit", limit)
    assert ran.code == 1
    assert "--limit" in ran.line
    assert "from 1 to 100000" in ran.line


class Moments:
    """In place of waiting: what happens to the log between two looks, then the end."""

    def __init__(self, *moments: Callable[[], object]) -> None:
        self._moments = list(moments)

    def __call__(self) -> bool:
        if not self._moments:
            return False
        self._moments.pop(0)()
        return True


def view(data: Path, wanted: Wanted | None = None) -> View:
    return View(EventFiles(data), wanted or Wanted(), as_json=True)


def test_following_shows_each_line_once_as_it_comes(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tell(data, line(STARTED, 0))
    half = line(STARTED, 3)

    def tear() -> None:
        with path.open("ab") as file:
            file.write(half[:20])

    def mend() -> None:
        with path.open("ab") as file:
            file.write(half[20:] + b"\n")

    follow(
        view(data),
        EventFiles(data).end(),
        Moments(
            lambda: tell(data, line(STARTED, 1), line(STARTED, 2)),
            lambda: None,
            tear,
            mend,
            lambda: tell(data, line(STARTED, 4), day="2026-10-20"),
        ),
    )
    shown = [json.loads(text)["id"] for text in capsys.readouterr().out.splitlines()]
    assert shown == ["evt-1", "evt-2", "evt-3", "evt-4"]


def test_following_goes_on_after_the_peer_took_back_what_found_no_room(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tell(data, line(STARTED, 0), line(ANSWERED, 1))

    def take_back() -> None:
        with path.open("r+b") as file:
            file.truncate(len(line(STARTED, 0)) + 1)

    again = Moments(take_back, lambda: tell(data, line(e.Undeployed(DEPLOYMENT), 1)))
    follow(view(data), EventFiles(data).end(), again)
    assert "Undeployed" in capsys.readouterr().out


def test_following_waits_for_a_folder_that_is_not_there_yet(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    follow(view(data), Place(), Moments(lambda: tell(data, line(STARTED, 0))))
    assert "evt-0" in capsys.readouterr().out


def test_following_filters(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = Wanted(types=frozenset({"Undeployed"}), since="2026-10-19T11:00:00.000Z")
    follow(
        view(data, wanted),
        Place(),
        Moments(lambda: tell(data, line(STARTED, 0), line(e.Undeployed(DEPLOYMENT), 1))),
    )
    assert [json.loads(text)["id"] for text in capsys.readouterr().out.splitlines()] == ["evt-1"]


@pytest.mark.parametrize(
    ("options", "first"),
    [((), 15), (("--limit", "3"), 22), (("--since", "2026-10-19T12:00:20Z"), 20)],
)
def test_following_begins_with_the_newest_or_as_asked(
    data: Path,
    cli: Callable[..., Ran],
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    first: int,
) -> None:
    tell(data, *(line(STARTED, n, ms=NOON + n * 1000) for n in range(25)))
    moments = Moments(lambda: tell(data, line(STARTED, 25, ms=NOON + 25_000)))
    monkeypatch.setattr(peer.cli.events, "_pause", moments)
    assert ids(cli("events", "--follow", "--json", *options)) == [f"evt-{n}" for n in range(first, 26)]


def test_ctrl_c_ends_following_as_done(
    data: Path, cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt() -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(peer.cli.events, "_pause", interrupt)
    tell(data, line(STARTED))
    ran = cli("events", "--follow")
    assert (ran.code, ran.err) == (0, "")
    assert "DeploymentStarted" in ran.out


def test_a_fact_without_a_holder_keeps_the_columns() -> None:
    from actors.messages.envelope import Head

    mine = person_line(Head("evt-0", "Undeployed", "2026-10-19T12:00:00.000Z"), {"deployment": DEPLOYMENT})
    theirs = person_line(
        Head("evt-0", "Undeployed", "2026-10-19T12:00:00.000Z", holder=HOLDER), {"deployment": DEPLOYMENT}
    )
    assert mine.index("ended by command") == theirs.index("ended by command")
