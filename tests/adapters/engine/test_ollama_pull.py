"""Pulls that go badly, on the stand-in and by the clock."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from adapters.engine import ollama_pull
from adapters.engine.json_http import JsonHttp
from adapters.engine.ollama_pull import MOST_PULLS, Pull
from adapters.engine.port import EngineFault, ModelNotFound, ModelNotPulled, ModelUnusable
from adapters.runtime.port import Handle
from tests.adapters.engine.conftest import script
from tests.standins.local import LocalRuntime
from tests.support.serving import Served


@pytest.fixture
async def http() -> AsyncIterator[JsonHttp]:
    async with JsonHttp() as made:
        yield made


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Resume with no pause."""
    monkeypatch.setattr(ollama_pull, "PAUSES_SECONDS", (0.0, 0.0))


async def pulls(http: JsonHttp, handle: Handle) -> list[str]:
    found = (await http.ask(handle.base_url, "GET", "/standin")).body["pulls"]
    assert isinstance(found, list)
    return found


async def make_ready(ollama: Served) -> None:
    with trio.fail_after(60):
        await ollama.engine.make_ready(await ollama.start(await ollama.plan()), lambda percent: None)


@pytest.mark.parametrize(
    ("attempts", "asked"),
    [
        ([{"break_at": 0.5}, {}], 2),
        ([{"error": "max retries exceeded: unexpected EOF"}, {"break_at": 0.1}, {}], 3),
        ([{"error_at": [0.5, "digest mismatch, file must be downloaded again"]}, {}], 2),
        # It came whole and only the word of it was lost.
        ([{"no_success": True}], 1),
    ],
)
async def test_a_pull_that_broke_off_is_resumed(
    ollama: Served, http: JsonHttp, registry: Path, attempts: list[dict[str, Any]], asked: int
) -> None:
    script(registry, tiny={"pulls": attempts})

    handle = await ollama.ready()

    assert await pulls(http, handle) == ["tiny"] * asked


async def test_only_success_is_success(ollama: Served, registry: Path) -> None:
    script(registry, tiny={"pulls": [{"ends_early": True}]})

    with pytest.raises(ModelNotPulled, match="status 200 and no word of success"):
        await make_ready(ollama)


async def test_it_is_resumed_twice_at_most(ollama: Served, http: JsonHttp, registry: Path) -> None:
    script(registry, tiny={"pulls": [{"break_at": 0.5}]})

    with pytest.raises(ModelNotPulled, match="broke off") as caught:
        await make_ready(ollama)
    handle = await ollama.runtime.find("dep-1")
    assert handle is not None
    assert await pulls(http, handle) == ["tiny"] * MOST_PULLS
    assert caught.value.fix


@pytest.mark.parametrize(
    ("words", "fault", "said"),
    [
        ("pull model manifest: file does not exist", ModelNotFound, "no such model"),
        ("pull model manifest: 401: unauthorized", ModelNotFound, "does not show"),
        ("The model you are attempting to pull requires a newer version of Ollama.", ModelUnusable, "newer"),
        ("write /root/.ollama/models/blobs/x: no space left on device", ModelNotPulled, "no room"),
        ("open /models/manifests/x: read-only file system", ModelUnusable, "model store"),
    ],
)
@pytest.mark.parametrize("late", [False, True])
async def test_what_would_fail_again_is_not_resumed(
    ollama: Served,
    http: JsonHttp,
    registry: Path,
    words: str,
    fault: type[EngineFault],
    said: str,
    late: bool,
) -> None:
    script(registry, tiny={"pulls": [{"error_at": [0.5, words]} if late else {"error": words}]})

    with pytest.raises(fault, match=said):
        await make_ready(ollama)
    handle = await ollama.runtime.find("dep-1")
    assert handle is not None
    assert await pulls(http, handle) == ["tiny"]


async def test_a_model_the_registry_does_not_have_is_not_found(ollama: Served) -> None:
    handle = await ollama.start(await ollama.plan("nothing"))

    with pytest.raises(ModelNotFound, match="no such model"):
        await ollama.engine.make_ready(handle, lambda percent: None)


async def test_no_way_to_the_registry_is_said_after_its_tries(ollama: Served) -> None:
    assert isinstance(ollama.runtime, LocalRuntime)
    ollama.runtime.more.clear()

    with pytest.raises(ModelNotPulled, match="no such host"):
        await make_ready(ollama)


@pytest.mark.parametrize("how", ["stall_at", "quiet_at"])
async def test_a_pull_of_which_nothing_new_is_heard_has_stalled(
    ollama: Served, http: JsonHttp, registry: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ollama_pull, "SILENT_SECONDS", 1.0)
    script(registry, tiny={"pulls": [{how: 0.5}]})

    with pytest.raises(ModelNotPulled, match=r"stalled at \d+ %: nothing new for 1 s"):
        await make_ready(ollama)
    handle = await ollama.runtime.find("dep-1")
    assert handle is not None
    assert await pulls(http, handle) == ["tiny"], "a stalled one is not begun again"
    assert await ollama.engine.is_alive(handle), "and Ollama was left, which ends it there"


class Told:
    """An Ollama whose pull says what the test says, at the test's times."""

    def __init__(self) -> None:
        self._say, self._lines = trio.open_memory_channel[dict[str, Any]](1000)
        self.base_url = ""
        self.held = False
        self.told: list[int | None] = []
        self.ended: list[EngineFault | None] = []
        self._heard = trio.Event()

    async def serve(self, *, task_status: trio.TaskStatus[None]) -> None:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with listener:
            self.base_url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
            task_status.started()
            async with await listener.accept() as stream:
                await stream.receive_some()
                await stream.send_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
                async for line in self._lines:
                    data = json.dumps(line).encode() + b"\n"
                    await stream.send_all(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def pull(self, http: JsonHttp) -> None:
        """Pull to the end, whatever that is."""

        async def is_held() -> bool:
            return self.held

        def progress(percent: int | None) -> None:
            self.told.append(percent)
            self._heard.set()

        try:
            await Pull(http, self.base_url, "m", is_held).run(progress)
            self.ended.append(None)
        except EngineFault as fault:
            self.ended.append(fault)

    async def say(self, *lines: dict[str, Any]) -> None:
        """Say something, and wait until it was heard."""
        for line in lines:
            self._heard = trio.Event()
            self._say.send_nowait(line)
            await self._heard.wait()

    def succeed(self) -> None:
        """Say that all of it came."""
        self._say.send_nowait({"status": "success"})


@pytest.fixture
async def told(nursery: trio.Nursery) -> Told:
    made = Told()
    await nursery.start(made.serve)
    return made


def part(digest: str, done: int, total: int) -> dict[str, Any]:
    return {"status": f"pulling {digest}", "digest": digest, "total": total, "completed": done}


async def test_five_minutes_with_nothing_new_are_a_stall_whatever_is_said_meanwhile(
    told: Told, http: JsonHttp, nursery: trio.Nursery, mock_clock: trio.testing.MockClock
) -> None:
    nursery.start_soon(told.pull, http)
    await told.say({"status": "pulling manifest"})
    mock_clock.jump(299)
    await told.say(part("a", 10, 100))
    mock_clock.jump(299)
    await told.say(part("a", 11, 100))
    mock_clock.jump(200)
    await told.say(part("a", 11, 100), {"status": "pulling a"}, part("a", 5, 100))
    mock_clock.jump(99)
    await trio.testing.wait_all_tasks_blocked()
    assert told.ended == [], "what moved counts, and it moved 299 s ago"
    mock_clock.jump(2)
    await trio.testing.wait_all_tasks_blocked()

    assert isinstance(told.ended[0], ModelNotPulled)
    assert "stalled at 5 %" in told.ended[0].reason
    nursery.cancel_scope.cancel()


async def test_checking_a_large_model_takes_its_time(
    told: Told, http: JsonHttp, nursery: trio.Nursery, mock_clock: trio.testing.MockClock
) -> None:
    nursery.start_soon(told.pull, http)
    await told.say(part("a", 50_000_000_000, 50_000_000_000), {"status": "verifying sha256 digest"})
    mock_clock.jump(1299)
    await trio.testing.wait_all_tasks_blocked()
    assert told.ended == []
    mock_clock.jump(2)
    await trio.testing.wait_all_tasks_blocked()

    assert isinstance(told.ended[0], ModelNotPulled)
    nursery.cancel_scope.cancel()


async def test_a_stall_with_the_model_there_is_none(
    told: Told, http: JsonHttp, nursery: trio.Nursery, mock_clock: trio.testing.MockClock
) -> None:
    nursery.start_soon(told.pull, http)
    told.held = True
    await told.say({"status": "removing unused layers"})
    mock_clock.jump(301)
    await trio.testing.wait_all_tasks_blocked()

    assert told.ended == [None]
    nursery.cancel_scope.cancel()


async def test_progress_is_over_all_that_is_known_and_falls_back_with_more(
    told: Told, http: JsonHttp, nursery: trio.Nursery
) -> None:
    async with trio.open_nursery() as pulling:
        pulling.start_soon(told.pull, http)
        await told.say(
            {"status": "pulling manifest"},
            {"status": "pulling a", "digest": "a", "total": 100},
            part("a", 50, 100),
            part("a", 100, 100),
            part("b", 100, 300),
            part("b", 900, 300),
            part("b", -5, 300),
            {"status": "pulling c", "digest": "c", "total": "much", "completed": None},
        )
        told.succeed()

    assert told.told == [None, 0, 50, 99, 50, 99, 25, 25]
    assert told.ended == [None]
    nursery.cancel_scope.cancel()
