"""Deployments on the Ollama of this machine, which is a stand-in that comes and goes."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from adapters.engine.json_http import JsonHttp
from adapters.engine.ollama import Ollama
from adapters.gpu.fake import cpu_device
from adapters.runtime import native
from adapters.runtime.native import NativeRuntime
from adapters.runtime.port import Executable, Exit, Handle, NotEnded, RuntimeFault, StartFailed, WorkloadSpec
from tests.standins.installed import Installed
from tests.standins.library import add_model, make_library
from tests.support.serving import MIB, Served
from tests.support.tinymodel import write_tiny_model


@pytest.fixture
async def http() -> AsyncIterator[JsonHttp]:
    async with JsonHttp() as made:
        yield made


@pytest.fixture
async def installed(tmp_path: Path) -> AsyncIterator[Installed]:
    """An Ollama that runs, with `tiny` in its registry and nothing pulled."""
    registry = make_library(tmp_path / "registry")
    weights = write_tiny_model(tmp_path / "tiny.gguf").read_bytes()
    for name in ("tiny", "other"):
        add_model(registry, name, weights + name.encode())
    made = Installed(make_library(tmp_path / "library"), registry)
    await made.start()
    yield made
    made.kill()


@pytest.fixture
def runtime(tmp_path: Path, http: JsonHttp, installed: Installed) -> NativeRuntime:
    return a_peer(tmp_path, http, installed)


def a_peer(tmp_path: Path, http: JsonHttp, installed: Installed, instance: str = "peer-1") -> NativeRuntime:
    return NativeRuntime(
        tmp_path / "data", instance, http, installed.base_url, look_seconds=0.05, gone_seconds=0.5
    )


def spec(workload: str = "dep-1", model: str = "tiny") -> WorkloadSpec:
    return WorkloadSpec(workload, "h-1", Executable(()), detail={"model": model, "context": "512"})


async def serve(
    runtime: NativeRuntime, http: JsonHttp, model: str = "tiny", workload: str = "dep-1"
) -> Handle:
    engine = Ollama(http, installed=runtime.base_url)
    served = Served(engine, runtime, model, 200 * MIB, cpu_device())
    return await served.ready(workload=workload)


async def test_it_says_what_it_is(runtime: NativeRuntime) -> None:
    assert (runtime.name, runtime.isolation, runtime.has_jobs, runtime.images) == (
        "native",
        "process",
        False,
        None,
    )


async def test_a_deployment_is_served_by_what_is_installed(
    runtime: NativeRuntime, http: JsonHttp, installed: Installed
) -> None:
    handle = await serve(runtime, http)

    assert (handle.base_url, handle.secret, handle.adopted) == (installed.base_url, None, False)
    assert await installed.loaded() == ["tiny:latest"]
    assert await runtime.find("dep-1") == handle
    assert await runtime.start(spec()) == handle
    assert await runtime.running() == await runtime.kept() == ("dep-1",)


async def test_one_that_does_not_answer_fails_the_start_with_what_to_do(
    runtime: NativeRuntime, installed: Installed
) -> None:
    installed.kill()

    with pytest.raises(StartFailed, match="does not answer") as caught:
        await runtime.start(spec())
    assert caught.value.code == "RUNTIME_UNAVAILABLE"
    assert "BEST_PEER_ENGINE_HOST" in caught.value.fix
    assert await runtime.find("dep-1") is None


async def test_a_stopped_deployment_lets_its_model_go_and_leaves_ollama(
    runtime: NativeRuntime, http: JsonHttp, installed: Installed
) -> None:
    await serve(runtime, http)
    exits: list[Exit] = []

    async def wait() -> None:
        exits.append(await runtime.wait("dep-1"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        nursery.start_soon(wait)
        await runtime.stop("dep-1", grace_seconds=1)

    assert exits == [Exit(None)] * 2
    assert await installed.loaded() == []
    assert await installed.answers()
    assert await runtime.find("dep-1") is None
    assert await runtime.running() == ()
    await runtime.stop("dep-1", grace_seconds=1)


async def test_a_model_that_another_deployment_is_on_stays(
    runtime: NativeRuntime, http: JsonHttp, installed: Installed
) -> None:
    await serve(runtime, http)
    await serve(runtime, http, "tiny:latest", "dep-2")

    await runtime.stop("dep-1", grace_seconds=1)
    assert await installed.loaded() == ["tiny:latest"]
    await runtime.stop("dep-2", grace_seconds=1)
    assert await installed.loaded() == []


async def test_the_model_of_another_deployment_is_its_own(
    runtime: NativeRuntime, http: JsonHttp, installed: Installed
) -> None:
    await serve(runtime, http)
    await serve(runtime, http, "other", "dep-2")

    await runtime.stop("dep-1", grace_seconds=1)

    assert await installed.loaded() == ["other:latest"]


async def test_an_ollama_that_is_gone_ends_its_deployments(
    runtime: NativeRuntime, http: JsonHttp, installed: Installed
) -> None:
    await serve(runtime, http)
    installed.kill()

    with trio.fail_after(30):
        ended = await runtime.wait("dep-1")

    assert ended.code is None
    assert "did not answer" in ended.output[0]
    assert await runtime.tail("dep-1") == ended.output
    assert await runtime.find("dep-1") is None
    fault = Ollama(http).explain(ended)
    assert "did not answer" in fault.reason


async def test_it_hangs_and_is_gone_all_the_same(
    tmp_path: Path, http: JsonHttp, installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.engine.ollama_api.ALIVE_SECONDS", 0.2)
    runtime = a_peer(tmp_path, http, installed)
    await serve(runtime, http)
    await installed.world(hang=True)

    with trio.fail_after(30):
        assert "did not answer" in (await runtime.wait("dep-1")).output[0]


async def test_the_end_of_an_ollama_is_known_within_thirty_seconds() -> None:
    worst = native.GONE_SECONDS + native.LOOK_SECONDS + 5.0
    assert worst < 30


async def test_one_that_was_started_again_goes_on(
    tmp_path: Path, http: JsonHttp, installed: Installed
) -> None:
    runtime = attrs.evolve(a_peer(tmp_path, http, installed), gone_seconds=60.0)
    handle = await serve(runtime, http)
    ended: list[Exit] = []

    async def wait() -> None:
        ended.append(await runtime.wait("dep-1"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        installed.kill()
        await trio.testing.wait_all_tasks_blocked()
        await installed.start()
        engine = Ollama(http, installed=runtime.base_url)
        with trio.fail_after(30):
            await engine.make_ready(handle, lambda percent: None)
        assert ended == []
        nursery.cancel_scope.cancel("it goes on")
    assert await installed.loaded() == ["tiny:latest"]


async def test_a_model_that_its_owner_removed_ends_the_deployment(
    runtime: NativeRuntime, http: JsonHttp, installed: Installed
) -> None:
    await serve(runtime, http)
    ended: list[Exit] = []

    async def wait() -> None:
        ended.append(await runtime.wait("dep-1"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        with trio.fail_after(30):
            while '"was_there": true' not in record(runtime):
                await trio.lowlevel.checkpoint()
            await installed.remove("tiny")

    assert "removed" in ended[0].output[0]


def record(runtime: NativeRuntime, workload: str = "dep-1") -> str:
    return (runtime.data / "workloads" / workload / native.RECORD).read_text()


async def test_a_model_that_was_never_there_may_still_be_pulled(runtime: NativeRuntime) -> None:
    await runtime.start(spec())

    with trio.move_on_after(1) as bound:
        await runtime.wait("dep-1")

    assert bound.cancelled_caught, "it waits"
    assert await runtime.find("dep-1") is not None


async def test_a_restarted_peer_finds_what_it_served(
    runtime: NativeRuntime, tmp_path: Path, http: JsonHttp, installed: Installed
) -> None:
    before = await serve(runtime, http)
    after = a_peer(tmp_path, http, installed)

    found = await after.find("dep-1")

    assert found == attrs.evolve(before, adopted=True)
    assert await after.running() == ("dep-1",)
    await after.stop("dep-1", grace_seconds=1)
    assert await installed.loaded() == []
    assert await a_peer(tmp_path, http, installed).running() == ()


async def test_another_peers_deployments_are_none_of_its_business(
    runtime: NativeRuntime, tmp_path: Path, http: JsonHttp, installed: Installed
) -> None:
    await serve(runtime, http)
    other = a_peer(tmp_path, http, installed, "peer-2")

    assert await other.find("dep-1") is None
    assert await other.running() == ()
    await other.stop("dep-1", grace_seconds=1)
    assert await installed.loaded() == ["tiny:latest"]


async def test_one_that_is_there_and_does_not_answer_keeps_the_wish_to_stop(
    runtime: NativeRuntime, http: JsonHttp, installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    await serve(runtime, http)
    monkeypatch.setattr(native, "UNLOAD_SECONDS", 0.3)
    await installed.world(hang=True)

    with pytest.raises(NotEnded, match="did not let go"):
        await runtime.stop("dep-1", grace_seconds=1)
    assert await runtime.running() == ("dep-1",)
    await installed.world(hang=False)
    await runtime.stop("dep-1", grace_seconds=1)
    assert await installed.loaded() == []


async def test_one_that_is_gone_holds_nothing_and_is_stopped(
    runtime: NativeRuntime, http: JsonHttp, installed: Installed
) -> None:
    await serve(runtime, http)
    installed.kill()

    await runtime.stop("dep-1", grace_seconds=1)

    assert await runtime.running() == ()


async def test_what_was_never_started_is_not_found(runtime: NativeRuntime) -> None:
    assert await runtime.find("dep-1") is None
    assert await runtime.tail("dep-1") == ()
    assert await runtime.wait("dep-1") == Exit(None)
    assert await runtime.kept() == ()
    await runtime.stop("dep-1", grace_seconds=1)
    await runtime.discard("dep-1")


async def test_a_discarded_deployment_leaves_nothing(runtime: NativeRuntime, http: JsonHttp) -> None:
    await serve(runtime, http)
    with pytest.raises(RuntimeFault, match="still served"):
        await runtime.discard("dep-1")
    await runtime.stop("dep-1", grace_seconds=1)
    assert await runtime.kept() == ("dep-1",)

    await runtime.discard("dep-1")

    assert await runtime.kept() == ()
    assert await runtime.wait("dep-1") == Exit(None)
    assert list((runtime.data / "workloads").iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"workload": 1}', json.dumps({"workload": "dep-1"})])
async def test_a_record_that_cannot_be_read_is_none(runtime: NativeRuntime, text: str) -> None:
    folder = runtime.data / "workloads" / "dep-1"
    os.makedirs(folder)
    (folder / native.RECORD).write_text(text)

    assert await runtime.find("dep-1") is None
    assert await runtime.running() == ()
    assert await runtime.kept() == ("dep-1",)
    await runtime.discard("dep-1")
    assert await runtime.kept() == ()


async def test_what_lies_there_of_other_runtimes_is_left_alone(runtime: NativeRuntime) -> None:
    folder = runtime.data / "workloads" / "dep-7"
    os.makedirs(folder)
    (folder / "record.json").write_text("{}")

    assert await runtime.kept() == ()
    assert await runtime.running() == ()


async def test_a_full_disk_fails_the_start_and_nothing_else(
    runtime: NativeRuntime, http: JsonHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    await serve(runtime, http)

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(native, "write_private", full)

    with pytest.raises(StartFailed, match="No space left") as caught:
        await runtime.start(spec("dep-2"))
    assert caught.value.code == "NO_ROOM"
    await runtime.stop("dep-1", grace_seconds=1)
    assert await runtime.wait("dep-1") == Exit(None)
