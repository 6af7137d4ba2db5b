"""What is made of an engine's answers about an end, where a real engine cannot be brought to give them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import attrs
import httpx
import orjson
import pytest
import trio
import trio.testing

from adapters.runtime.docker.client import DockerClient
from adapters.runtime.docker.containers import EVENTS_KEPT, LATE_SECONDS, MAX_EVENT, Containers
from adapters.runtime.docker.endpoint import Endpoint
from adapters.runtime.docker.ends import Asked
from adapters.runtime.docker.info import EngineInfo
from adapters.runtime.docker.labels import labels_of
from adapters.runtime.docker.watch import Watch
from adapters.runtime.port import Container, Exit, NotEnded, WorkloadSpec

NOW = datetime.now(UTC)
STARTED = NOW - timedelta(minutes=10)
ENDED = NOW - timedelta(minutes=5)
SPEC = WorkloadSpec("job-1", "h-1", Container("i"))
VERSION = {"Version": "28", "ApiVersion": "1.51", "MinAPIVersion": "1.24", "Os": "linux", "Arch": "amd64"}


@attrs.frozen
class Sent(httpx.AsyncByteStream):
    """A body as it comes over a connection: `before` runs first."""

    body: bytes
    before: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint

    async def __aiter__(self) -> AsyncIterator[bytes]:
        await self.before()
        yield self.body


def reply(status: int = 200, json: object = None, content: bytes = b"") -> httpx.Response:
    return httpx.Response(status, stream=Sent(content if json is None else orjson.dumps(json)))


def event(minutes_ago: float, action: str = "die", identity: str = "other") -> dict[str, Any]:
    when = NOW - timedelta(minutes=minutes_ago)
    return {"Action": action, "Actor": {"ID": identity}, "timeNano": int(when.timestamp() * 1e9)}


@attrs.define
class Engine(httpx.AsyncBaseTransport):
    """An engine that has one container and remembers some events.

    `answers` is what it answers to the end of a path before anything else, each once.
    """

    state: dict[str, Any]
    events: list[dict[str, Any]] = attrs.field(factory=list)
    answers: list[tuple[str, Callable[[], httpx.Response]]] = attrs.field(factory=list)
    asked: list[str] = attrs.field(factory=list)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        filters = orjson.loads(request.url.params.get("filters", "{}"))
        wanted = filters.get("event", [])
        self.asked.append(" ".join((request.method, path.rpartition("/")[2], *wanted)))
        for one in self.answers:
            if path.endswith(one[0]):
                self.answers.remove(one)
                return one[1]()
        if path.endswith("/version"):
            return reply(json=VERSION)
        if path.endswith("/json"):
            return reply(json=self.container())
        if path.endswith("/events"):
            told = [one for one in self.events if not wanted or one["Action"] in wanted]
            return reply(content=b"\n".join(map(orjson.dumps, told)))
        return reply()

    def container(self) -> dict[str, Any]:
        return {
            "Id": "ours",
            "Name": "/bp-p-1-job-1",
            "State": self.state,
            "Config": {"Labels": labels_of(SPEC, "p-1"), "Env": []},
        }


def ended(code: int = 137, **more: Any) -> dict[str, Any]:
    times = {"StartedAt": STARTED.isoformat(), "FinishedAt": ENDED.isoformat()}
    return {"Status": "exited", "Running": False, "ExitCode": code, "OOMKilled": False, **times, **more}


RUNNING = {"Status": "running", "Running": True, "StartedAt": STARTED.isoformat()}


async def end_told_by(engine: Engine, *, survives: bool = False, asked: Asked | None = None) -> Exit:
    async with DockerClient(Endpoint("http://docker"), 0.0, engine) as client:
        info = EngineInfo("28", 2, "container", survives_restart=survives)
        watch = Watch(Containers(client, "p-1"), info, {} if asked is None else {"ours": asked})
        return await watch.wait("job-1")


async def test_an_engine_that_has_no_start_of_it_in_memory_was_started_since() -> None:
    told = await end_told_by(Engine(ended(), [event(4)]))

    assert (told.code, told.interrupted) == (137, True)


async def test_an_engine_that_remembers_its_start_was_not_started_since() -> None:
    told = await end_told_by(Engine(ended(), [event(10, "start", "ours"), event(5, "die", "ours")]))

    assert not told.interrupted


@pytest.mark.parametrize(("oldest", "is_so"), [(11, True), (9, False)])
async def test_an_engine_that_forgot_the_oldest_tells_only_of_what_it_reaches_back_to(
    oldest: float, is_so: bool
) -> None:
    told = await end_told_by(Engine(ended(), [event(oldest), *[event(1)] * (EVENTS_KEPT - 1)]))

    assert told.interrupted is is_so


async def test_what_an_engine_remembers_of_others_does_not_hide_an_end() -> None:
    much = {**event(4), "Actor": {"ID": "x", "Attributes": {"label": "x" * MAX_EVENT}}}

    told = await end_told_by(Engine(ended(), [much]))

    assert (told.code, told.interrupted) == (137, False)


async def test_a_clock_that_is_not_ours_tells_nothing() -> None:
    state = ended(FinishedAt=(NOW + timedelta(days=365)).isoformat())

    assert not (await end_told_by(Engine(state, [event(4)]))).interrupted


@pytest.mark.parametrize(
    ("code", "survives", "asked"), [(3, False, None), (137, True, None), (137, False, Asked(to_end=True))]
)
async def test_nobody_is_asked_where_it_cannot_have_been_the_engine(
    code: int, survives: bool, asked: Asked | None
) -> None:
    engine = Engine(ended(code))

    assert not (await end_told_by(engine, survives=survives, asked=asked)).interrupted
    assert "GET events" not in engine.asked


async def test_memory_that_ran_out_in_the_very_last_moment_is_told_after_the_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    late = Sent(orjson.dumps(event(5, "oom", "ours")), partial(trio.sleep, LATE_SECONDS / 2))
    answers = [("/events", lambda: httpx.Response(200, stream=late))]

    told = await end_told_by(Engine(ended(), answers=answers), survives=True)

    assert (told.code, told.out_of_memory) == (137, True)


async def test_an_engine_that_tells_of_no_memory_is_not_waited_for(
    autojump_clock: trio.testing.MockClock,
) -> None:
    answers = [("/events", lambda: httpx.Response(200, stream=Sent(b"", trio.sleep_forever)))]

    told = await end_told_by(Engine(ended(), answers=answers), survives=True)

    assert (told.code, told.out_of_memory) == (137, False)
    assert trio.current_time() == pytest.approx(LATE_SECONDS)


@pytest.mark.parametrize(
    "answer",
    [
        reply(content=orjson.dumps(event(5, "oom"))),
        reply(content=orjson.dumps(event(5, "die", "ours"))),
        reply(content=b"<html>"),
        reply(403, json={"message": "no events"}),
    ],
)
async def test_what_tells_nothing_of_its_memory_is_no_evidence(answer: httpx.Response) -> None:
    engine = Engine(ended(), answers=[("/events", lambda: answer)])

    told = await end_told_by(engine, survives=True)

    assert (told.code, told.out_of_memory) == (137, False)


@pytest.mark.parametrize(
    ("state", "asked"),
    [
        (ended(3), None),
        (ended(OOMKilled=True), None),
        (ended(), Asked(to_end=True, was_killed=True)),
    ],
)
async def test_what_is_known_of_its_memory_is_not_asked(state: dict[str, Any], asked: Asked | None) -> None:
    engine = Engine(state, [event(5, "oom", "ours")])

    told = await end_told_by(engine, survives=True, asked=asked)

    assert told.out_of_memory is state["OOMKilled"]
    assert "GET events oom" not in engine.asked


async def test_an_answer_that_cannot_be_read_is_no_absence(autojump_clock: trio.testing.MockClock) -> None:
    start = event(10, "start", "ours")
    state = ended(FinishedAt=datetime.now(UTC).isoformat())
    engine = Engine(state, [start], [("/json", lambda: reply(content=b"<html>"))])

    told = await end_told_by(engine)

    assert (told.code, told.interrupted) == (137, False)


async def test_an_error_is_asked_about_again(autojump_clock: trio.testing.MockClock) -> None:
    answers: list[tuple[str, Callable[[], httpx.Response]]] = [
        ("/json", lambda: reply(500, json={"message": "busy"})),
        ("/logs", lambda: reply(500, json={"message": "no logs"})),
    ]

    assert (await end_told_by(Engine(ended(3), answers=answers))) == Exit(
        3, ended_at=f"{ENDED.isoformat(timespec='milliseconds')[:23]}Z"
    )


async def test_an_engine_that_says_ended_while_it_runs_is_asked_in_its_own_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    engine = Engine(RUNNING)
    with trio.move_on_after(10):
        await end_told_by(engine)

    assert 100 < engine.asked.count("POST wait") <= 10 / 0.05 + 2


async def test_an_engine_that_never_says_ended_is_looked_at_all_the_same(
    autojump_clock: trio.testing.MockClock,
) -> None:
    engine = Engine(RUNNING)

    async def silent() -> None:
        await trio.sleep(30)
        engine.state = ended(4)
        await trio.sleep_forever()

    engine.answers.append(("/wait", lambda: httpx.Response(200, stream=Sent(b"", silent))))

    assert (await end_told_by(engine)).code == 4


async def test_a_container_that_outlives_its_kill_is_not_said_to_have_ended(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with DockerClient(Endpoint("http://docker"), 0.0, Engine(RUNNING)) as client:
        containers = Containers(client, "p-1")
        found = await containers.look("job-1")
        assert found is not None
        asked: dict[str, Asked] = {}

        with pytest.raises(NotEnded, match="was killed"):
            await Watch(containers, EngineInfo("28", 2, "container"), asked).stop(found, 5)

    assert asked == {"ours": Asked(to_end=True, was_killed=True)}
