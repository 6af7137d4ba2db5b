"""pull-image: fetches whatever is held, and completes once whatever happens (F22, F8)."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import attrs
import pytest

from actors.messages.commands import PullImage
from actors.rules.refusal import Refusal
from adapters.images.port import ImageNotFound
from adapters.runtime.fake import FakeRuntime
from tests.support.houses import Household, open_house
from tests.support.shelves import DIGEST, PINNED, TAG, Shelf, image

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from adapters.images.port import OnProgress


@asynccontextmanager
async def open_shelf(folder: Path, shelf: Shelf, **more: Any) -> AsyncIterator[Household]:
    """A house whose images are a test's."""
    images = cast("Any", shelf)
    async with open_house(
        folder, make_runtime=lambda path: FakeRuntime(path, images=images), **more
    ) as house:
        yield house


@pytest.mark.parametrize("reference", [TAG, PINNED])
async def test_an_image_is_fetched_though_it_is_held(tmp_path: Path, reference: str) -> None:
    """Easily missed 13."""
    shelf = Shelf(holds={reference: image(reference)})
    async with open_shelf(tmp_path, shelf) as house:
        key = await house.key()
        receipt = await house.submit(key, PullImage(reference), correlation="corr-1")
        await house.completed(receipt.id)
        await house.check()
        facts = await house.facts()
    assert shelf.pulled == [reference]
    assert [f["type"] for f in facts] == ["ImagePulling", "ImagePulling", "ImagePulled"]
    assert facts[1]["data"] == {"image": reference, "progress_pct": 100}
    assert facts[2]["data"] == {"image": reference, "digest": DIGEST, "held": False}
    assert {(f["holder"], f["correlationid"], f["causationid"]) for f in facts} == {
        (key.holder, "corr-1", receipt.id)
    }


async def test_a_fault_completes_it_with_its_code_and_fix(tmp_path: Path) -> None:
    shelf = Shelf(faults=[ImageNotFound("there is none", fix="name another")])
    async with open_shelf(tmp_path, shelf) as house:
        command = await house.send(await house.key(), PullImage(TAG))
        fact = await house.told("CommandFailed", causation=command)
        await house.check()
    told = fact["data"]
    assert (told["code"], told["reason"], told["fix"]) == ("IMAGE_NOT_FOUND", "there is none", "name another")
    assert told["command_type"] == "PullImage"


async def test_two_of_one_image_both_come_to_their_end(tmp_path: Path) -> None:
    shelf = Shelf()
    gate = shelf.hold_pulls()
    async with open_shelf(tmp_path, shelf) as house:
        key = await house.key()
        first, second = await house.send(key, PullImage(TAG)), await house.send(key, PullImage(TAG))
        await house.until(lambda: len(shelf.pulled) == 2)
        gate.set()
        await house.completed(first, second)
        await house.check()
        for command in (first, second):
            assert (await house.types(command))[-1] == "ImagePulled"


async def test_a_restart_pulls_again(tmp_path: Path) -> None:
    shelf = Shelf()
    shelf.hold_pulls()
    async with open_shelf(tmp_path, shelf) as house:
        command = await house.send(await house.key(), PullImage(TAG))
        await house.until(lambda: shelf.says is not None)
    assert shelf.says is None
    async with open_shelf(tmp_path, Shelf()) as again:
        await again.completed(command)
        assert await again.types(command) == ["ImagePulling", "ImagePulling", "ImagePulling", "ImagePulled"]


async def test_a_key_taken_back_ends_its_pulls_and_nobody_elses(tmp_path: Path) -> None:
    shelf = Shelf()
    gate = shelf.hold_pulls()
    async with open_shelf(tmp_path, shelf) as house:
        key, other = await house.key(), await house.key("other")
        command = await house.send(key, PullImage(TAG))
        theirs = await house.send(other, PullImage(TAG))
        await house.until(lambda: len(shelf.pulled) == 2)
        await house.revoke(key)
        fact = await house.told("CommandFailed", causation=command)
        assert fact["data"]["code"] == "KEY_REVOKED"
        await house.until(lambda: not house.store.ring.ending())
        gate.set()
        await house.completed(theirs)
        assert (await house.types(theirs))[-1] == "ImagePulled"


async def test_a_pull_that_a_closed_key_was_left_is_ended_by_a_later_revoke(tmp_path: Path) -> None:
    """It runs as a workload does, and holds the disk and the network of the machine."""
    shelf = Shelf()
    shelf.hold_pulls()
    async with open_shelf(tmp_path, shelf) as house:
        key = await house.key()
        command = await house.send(key, PullImage(TAG))
        await house.until(lambda: shelf.says is not None)
        await house.registrar.give_back(key.holder)
        again = await house.registrar.revoke(key.holder, ends_work=True)
        assert [k.holder for k in again.closed_before] == [key.holder]
        fact = await house.told("CommandFailed", causation=command)
        assert fact["data"]["code"] == "KEY_REVOKED"


@attrs.define(eq=False)
class NoImages(FakeRuntime):
    """A runtime of processes."""

    @property
    def name(self) -> str:
        return "process"


def without_images(folder: Path) -> FakeRuntime:
    return NoImages(folder, images=cast("Any", None))


async def test_without_images_it_is_refused_at_once_with_the_way_on(tmp_path: Path) -> None:
    async with open_house(tmp_path, make_runtime=without_images) as house:
        with pytest.raises(Refusal, match="runs no containers") as refused:
            await house.send(await house.key(), PullImage(TAG))
        assert refused.value.code == "IMAGES_UNAVAILABLE"
        assert refused.value.details["runtime"] == "process"
        assert house.store.world.unfinished == {}


async def test_one_accepted_before_the_runtime_had_no_images_any_more_fails(tmp_path: Path) -> None:
    shelf = Shelf()
    shelf.hold_pulls()
    async with open_shelf(tmp_path, shelf) as house:
        command = await house.send(await house.key(), PullImage(TAG))
        await house.until(lambda: shelf.says is not None)
    async with open_house(tmp_path, make_runtime=without_images) as again:
        fact = await again.told("CommandFailed", causation=command)
        assert fact["data"]["code"] == "IMAGES_UNAVAILABLE"


async def test_what_names_no_image_is_refused_at_once(tmp_path: Path) -> None:
    async with open_shelf(tmp_path, Shelf()) as house:
        with pytest.raises(Refusal) as refused:
            await house.send(await house.key(), PullImage("no image"))
        assert refused.value.code == "INVALID_IMAGE"
        assert refused.value.details["field"] == "/data/image"


async def test_a_pull_that_keeps_crashing_is_given_up_and_told(tmp_path: Path) -> None:
    @attrs.define(eq=False)
    class Broken(Shelf):
        async def pull(self, reference: str, on_progress: OnProgress, **more: Any) -> Any:
            raise RuntimeError("a mistake of ours")

    async with open_shelf(tmp_path, Broken()) as house:
        command = await house.send(await house.key(), PullImage(TAG))
        fact = await house.told("CommandFailed", causation=command)
        assert fact["data"]["code"] == "INTERNAL"
        assert "RuntimeError" in fact["data"]["reason"]
        assert "mistake" not in fact["data"]["reason"]
