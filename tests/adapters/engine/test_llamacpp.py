"""llama.cpp as it really starts, serves, fails and ends."""

import importlib.util
import json
import os
import signal
import struct
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import attrs
import pytest
import trio

from adapters.engine.ends import explain_llamacpp
from adapters.engine.llamacpp import LlamaCpp, find_llama_server, threads_for, usable_cores
from adapters.engine.openai_chat import OpenAiChat
from adapters.engine.port import (
    Chat,
    EngineEnded,
    EngineFault,
    EngineMissing,
    EngineOutOfMemory,
    EngineUnreachable,
    Message,
    ModelNotFound,
    ModelUnusable,
    Plan,
    PortTaken,
)
from adapters.gpu.fake import cpu_device
from adapters.models.folder import ModelFolder
from adapters.runtime.port import Executable, Exit, WorkloadSpec
from tests.support.serving import MIB, Served
from tests.support.tinymodel import write_tiny_model

OWNERS = Path(__file__).parents[2] / "support" / "owners_llama_server.py"
HELLO = Chat((Message("user", "hello"),), max_tokens=4)


@pytest.fixture
async def chat() -> AsyncIterator[OpenAiChat]:
    async with OpenAiChat() as made:
        yield made


def owners_server(folder: Path) -> Path:
    path = folder / "llama-server"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {OWNERS} "$@"\n')
    path.chmod(0o700)
    return path


def pid_of(folder: Path, workload: str = "dep-1") -> int:
    record = json.loads((folder / "workloads" / workload / "record.json").read_text())
    return int(record["identity"]["pid"])


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


async def test_a_plan_settles_context_slots_and_threads(llamacpp: Served) -> None:
    plan = await llamacpp.engine.plan("tiny.gguf", 100 * MIB)

    assert plan == Plan(
        model="tiny",
        memory_bytes=100 * MIB,
        context_tokens=512,
        slots=4,
        detail=(
            ("model", "tiny"),
            ("file", "tiny.gguf"),
            ("context", "2048"),
            ("slots", "4"),
            ("threads", "1"),
        ),
    )


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 1), (3, 2), (8, 7), (64, 8)])
def test_not_every_core_is_taken(cores: int, threads: int) -> None:
    assert threads_for(cores) == threads


def test_the_owners_server_is_the_one_set_or_the_one_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_llama_server(None) is None
    server = owners_server(tmp_path)
    assert find_llama_server(None) == server
    assert find_llama_server(tmp_path / "other") == tmp_path / "other"
    assert usable_cores() >= 1


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ({"llama.pooling_type": 1}, "embedding model"),
        ({"general.type": "adapter"}, "only a part"),
        ({"split.count": 2}, "one of 2 parts"),
    ],
)
async def test_a_file_that_holds_no_conversation_is_neither_listed_nor_planned(
    llamacpp: Served, models: ModelFolder, extra: dict[str, object], reason: str
) -> None:
    write_tiny_model(models.path / "other.gguf", extra=extra)

    assert [model.name for model in await llamacpp.engine.models() or ()] == ["tiny"]
    with pytest.raises(ModelUnusable, match=reason):
        await llamacpp.engine.plan("other", 100 * MIB)


async def test_a_file_cut_short_is_refused_before_it_is_promised(
    llamacpp: Served, models: ModelFolder
) -> None:
    whole = (models.path / "tiny.gguf").read_bytes()
    (models.path / "cut.gguf").write_bytes(whole[: len(whole) // 2])

    with pytest.raises(ModelUnusable, match="is incomplete"):
        await llamacpp.engine.plan("cut", 100 * MIB)


@pytest.mark.parametrize("has_setting", [True, False])
async def test_a_machine_with_no_llamacpp_tells_its_owner_what_to_install_and_a_caller_to_ask(
    models: ModelFolder,
    chat: OpenAiChat,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    has_setting: bool,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    engine = LlamaCpp(models, chat, 2, llama_server=tmp_path / "none" if has_setting else None)
    said = f"no llama-server at {tmp_path}/none" if has_setting else "install.sh --cpu"
    assert said in (engine.missing() or "")
    assert "BEST_PEER_LLAMA_SERVER" in (engine.missing() or "")

    with pytest.raises(EngineMissing, match="no program for the engine llamacpp") as caught:
        await engine.plan("tiny", 100 * MIB)

    assert "ask the owner of the machine to install it" in caught.value.fix
    assert "pip" not in caught.value.fix
    assert str(tmp_path) not in caught.value.reason + caught.value.fix
    assert said in caplog.text


async def test_nothing_is_missing_where_there_is_a_program(llamacpp: Served, tmp_path: Path) -> None:
    assert isinstance(llamacpp.engine, LlamaCpp)
    assert llamacpp.engine.missing() is None
    assert attrs.evolve(llamacpp.engine, llama_server=owners_server(tmp_path)).missing() is None


async def test_a_model_that_is_not_there_is_refused_with_those_that_can_be_deployed_alone(
    llamacpp: Served, models: ModelFolder, tmp_path: Path
) -> None:
    """What else lies in the folder is the owner's, and nothing that a tenant may see."""
    (models.path / "diary.gguf").write_text("no model")
    (models.path / "elsewhere.gguf").symlink_to(tmp_path / "other.gguf")
    write_tiny_model(models.path / "vectors.gguf", extra={"llama.pooling_type": 1})

    for name in ("none", "sha256:" + "0" * 64):
        with pytest.raises(ModelNotFound) as caught:
            await llamacpp.engine.plan(name, 100 * MIB)
        assert caught.value.fix == "name one of these: tiny"

    os.unlink(models.path / "tiny.gguf")
    with pytest.raises(ModelNotFound) as caught:
        await llamacpp.engine.plan("none", 100 * MIB)
    assert "ask the owner of the machine to add a model" in caught.value.fix


async def test_neither_arguments_nor_output_name_the_owners_paths(
    llamacpp: Served, models: ModelFolder, tmp_path: Path
) -> None:
    plan = await llamacpp.engine.plan("tiny", 100 * MIB)
    os.unlink(models.path / "tiny.gguf")
    handle = await llamacpp.start(plan)

    program = llamacpp.engine.program(plan, cpu_device(), workload="dep-1")
    assert isinstance(program, Executable)
    assert not any(str(models.path) in part for part in program.argv)
    ended = await llamacpp.runtime.wait(handle.workload)
    assert ended.output
    assert not any(str(tmp_path) in line for line in ended.output)


async def test_a_served_model_stays_within_its_promise(llamacpp: Served, tmp_path: Path) -> None:
    (model,) = await llamacpp.engine.models() or ()
    handle = await llamacpp.ready(memory_bytes=model.least_memory_bytes)
    await llamacpp.engine.answer(handle, Chat((Message("user", "x" * 400),), max_tokens=50))

    most_kib = int(status_of(pid_of(tmp_path))["VmHWM"].split()[0])

    assert most_kib * 1024 <= model.least_memory_bytes


async def test_the_owners_own_server_is_used_where_there_is_one(
    llamacpp: Served, models: ModelFolder, chat: OpenAiChat, tmp_path: Path
) -> None:
    owners = Served(LlamaCpp(models, chat, 2, llama_server=owners_server(tmp_path)), llamacpp.runtime)

    handle = await owners.ready()

    assert (await owners.engine.answer(handle, HELLO)).model == "tiny"


async def test_a_model_without_a_template_of_its_own_converses_too(
    llamacpp: Served, models: ModelFolder
) -> None:
    write_tiny_model(models.path / "plain.gguf", template=None)

    handle = await llamacpp.ready("plain")

    assert (await llamacpp.engine.answer(handle, HELLO)).model == "plain"


REFUSES = "{{ raise_exception('no conversations here') }}"


async def test_a_template_that_refuses_every_conversation_is_explained(
    llamacpp: Served, models: ModelFolder
) -> None:
    write_tiny_model(models.path / "sour.gguf", template=REFUSES)
    await llamacpp.start(await llamacpp.engine.plan("sour", 100 * MIB))

    fault = llamacpp.engine.explain(await llamacpp.runtime.wait("dep-1"))

    assert isinstance(fault, ModelUnusable)
    assert "chat template cannot be used" in fault.reason


async def test_a_model_that_refuses_the_first_conversation_does_not_become_ready(
    llamacpp: Served, models: ModelFolder
) -> None:
    write_tiny_model(
        models.path / "sour.gguf",
        template=f"{{% if messages[0]['content'] == 'Hi' %}}{REFUSES}{{% endif %}}x",
    )
    handle = await llamacpp.start(await llamacpp.engine.plan("sour", 100 * MIB))

    with pytest.raises(EngineFault, match="no conversations here"), trio.fail_after(60):
        await llamacpp.engine.make_ready(handle, lambda percent: None)


async def test_another_key_opens_nothing(llamacpp: Served) -> None:
    handle = await llamacpp.ready()

    with pytest.raises(EngineUnreachable, match="does not take this peer's key"):
        await llamacpp.engine.answer(attrs.evolve(handle, secret="other"), HELLO)


async def test_asked_to_end_it_ends_with_zero(llamacpp: Served) -> None:
    await llamacpp.ready()

    await llamacpp.runtime.stop("dep-1", grace_seconds=30)

    assert (await llamacpp.runtime.wait("dep-1")).code == 0


async def test_one_that_is_killed_is_found_dead_and_explained(llamacpp: Served, tmp_path: Path) -> None:
    handle = await llamacpp.ready()

    os.kill(pid_of(tmp_path), signal.SIGKILL)

    ended = await llamacpp.runtime.wait("dep-1")
    assert ended.code == 137
    assert llamacpp.engine.explain(ended).reason.startswith("the engine was killed")
    assert not await llamacpp.engine.is_alive(handle)


async def test_a_model_removed_meanwhile_is_explained(llamacpp: Served, models: ModelFolder) -> None:
    plan = await llamacpp.engine.plan("tiny", 100 * MIB)
    os.unlink(models.path / "tiny.gguf")

    await llamacpp.start(plan)

    fault = llamacpp.engine.explain(await llamacpp.runtime.wait("dep-1"))
    assert isinstance(fault, ModelUnusable)
    assert "file is gone" in fault.reason


async def test_a_model_broken_meanwhile_is_explained(llamacpp: Served, models: ModelFolder) -> None:
    plan = await llamacpp.engine.plan("tiny", 100 * MIB)
    whole = (models.path / "tiny.gguf").read_bytes()
    for broken in (whole[: len(whole) // 2], b"words" + whole):
        os.unlink(models.path / "tiny.gguf")
        (models.path / "tiny.gguf").write_bytes(broken)
        await llamacpp.start(plan)
        fault = llamacpp.engine.explain(await llamacpp.runtime.wait("dep-1"))
        assert isinstance(fault, ModelUnusable)
        assert "broken or incomplete" in fault.reason


async def test_a_kind_of_model_it_does_not_know_is_explained(llamacpp: Served, models: ModelFolder) -> None:
    write_tiny_model(models.path / "new.gguf", architecture="gpt99")

    await llamacpp.start(await llamacpp.engine.plan("new", 100 * MIB))

    fault = llamacpp.engine.explain(await llamacpp.runtime.wait("dep-1"))
    assert isinstance(fault, ModelUnusable)
    assert "does not know the model's kind" in fault.reason
    assert "gpt99" in fault.reason


def damaged(whole: bytes, kind: str) -> bytes:
    """A model with a good header, and a fault in what the header speaks of."""
    name = b"blk.0.attn_q.weight"
    after = whole.index(name) + len(name)  # its dimensions, their sizes, its type and its offset
    match kind:
        case "a tensor renamed":
            return whole.replace(b"blk.1.ffn_up.weight", b"blk.1.ffn_uq.weight")
        case "a shape changed":
            return whole[: after + 4] + struct.pack("<QQ", 32, 128) + whole[after + 20 :]
        case "a type changed":
            return whole[: after + 20] + struct.pack("<I", 222) + whole[after + 24 :]
        case "an offset changed":
            return whole[: after + 24] + struct.pack("<Q", 96) + whole[after + 32 :]
        case _:
            return whole.replace(b"tokenizer.ggml.tokens", b"tokenizer.ggml.tokenx")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("a tensor renamed", "check_tensor_dims: tensor 'blk.1.ffn_up.weight' not found"),
        ("a shape changed", "'blk.0.attn_q.weight' has wrong shape"),
        ("a type changed", "'blk.0.attn_q.weight' has invalid ggml type 222"),
        ("an offset changed", "'blk.0.attn_q.weight' has offset 96"),
        ("no vocabulary", "cannot find tokenizer vocab"),
    ],
)
async def test_a_damaged_model_with_a_good_header_is_explained(
    llamacpp: Served, models: ModelFolder, tiny_model: Path, kind: str, said: str
) -> None:
    whole = tiny_model.read_bytes()  # noqa: ASYNC240 - half a megabyte
    (models.path / "bad.gguf").write_bytes(damaged(whole, kind))

    await llamacpp.start(await llamacpp.engine.plan("bad", 100 * MIB))

    fault = llamacpp.engine.explain(await llamacpp.runtime.wait("dep-1"))
    assert isinstance(fault, ModelUnusable)
    assert "file is damaged, or made for another version of llama.cpp: " in fault.reason
    assert said in fault.reason
    assert "add it again from its source" in fault.fix


async def test_a_port_that_was_taken_meanwhile_is_explained(llamacpp: Served) -> None:
    handle = await llamacpp.ready()
    program = llamacpp.engine.program(
        await llamacpp.engine.plan("tiny", 100 * MIB), cpu_device(), workload="dep-2"
    )
    assert isinstance(program, Executable)
    taken = handle.base_url.rpartition(":")[2]
    program = attrs.evolve(program, argv=tuple(part.replace("{port}", taken) for part in program.argv))

    await llamacpp.runtime.start(WorkloadSpec("dep-2", "h-1", program))

    fault = llamacpp.engine.explain(await llamacpp.runtime.wait("dep-2"))
    assert isinstance(fault, PortTaken)


async def test_a_ceiling_of_memory_that_is_reached_is_explained(llamacpp: Served) -> None:
    plan = await llamacpp.engine.plan("tiny", 100 * MIB)
    program = llamacpp.engine.program(plan, cpu_device(), workload="dep-1")
    # Ten times what it was promised, which the kernel then refuses.
    assert isinstance(program, Executable)
    argv = list(program.argv)
    argv[argv.index("--context") + 1] = str(8 * 1024 * 1024)
    program = attrs.evolve(program, argv=tuple(argv))

    await llamacpp.runtime.start(WorkloadSpec("dep-1", "h-1", program, memory_bytes=1024 * MIB))

    fault = llamacpp.engine.explain(await llamacpp.runtime.wait("dep-1"))
    assert isinstance(fault, EngineOutOfMemory)


@pytest.mark.parametrize(
    ("ended", "kind", "reason"),
    [
        (Exit(132, ("AMX is not ready to be used!",)), EngineEnded, "built for another processor"),
        (Exit(0), EngineEnded, "ended by itself"),
        (Exit(None, ("listening",)), EngineEnded, "not known; it said last: listening"),
        (Exit(137, out_of_memory=True), EngineOutOfMemory, "the system ended it"),
        (Exit(137), EngineEnded, "by signal 9; nobody recorded why, want of memory is the usual cause"),
        (Exit(7, ("x" * 1000,)), EngineEnded, "failed with code 7"),
        (Exit(1, ("error: invalid argument: --no-slots",)), EngineEnded, "does not know an option"),
        (
            Exit(127, ("llama-server: error while loading shared libraries: libllama.so",)),
            EngineEnded,
            "lacks a library",
        ),
        (
            Exit(1, ("E failed to allocate buffer for kv cache", "E failed to create context")),
            EngineOutOfMemory,
            "kv cache",
        ),
        (
            Exit(1, ("0.01 E load: error loading model: unable to allocate CPU buffer", "0.02 E failed")),
            EngineOutOfMemory,
            ": load: error loading model",
        ),
        (Exit(1, ("error loading model: of a new kind",)), ModelUnusable, "file is damaged"),
    ],
)
def test_an_end_is_explained_by_its_signs(ended: Exit, kind: type[EngineFault], reason: str) -> None:
    fault = explain_llamacpp(ended)

    assert type(fault) is kind
    assert reason in fault.reason
    assert len(fault.reason) < 500


async def test_waiting_for_one_that_never_loads_is_the_callers_to_end(llamacpp: Served) -> None:
    plan = await llamacpp.engine.plan("tiny", 100 * MIB)
    program = llamacpp.engine.program(plan, cpu_device(), workload="dep-1")
    assert isinstance(program, Executable)
    silent = attrs.evolve(program, argv=(sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"))
    handle = await llamacpp.runtime.start(WorkloadSpec("dep-1", "h-1", silent))

    with trio.move_on_after(0.2) as scope:
        await llamacpp.engine.make_ready(handle, lambda percent: None)

    assert scope.cancelled_caught
