"""How the fake's registry and engine are scripted."""

import pytest
import trio

from adapters.images.fake import TWO_STEPS, FakeImages
from adapters.images.port import ImageDenied, ImageNotFound, PullFailed, PullProgress, RegistryToken


def unheard(progress: PullProgress) -> None:
    """Progress that nobody asks for."""


async def test_unless_told_otherwise_every_image_is_there_and_is_pulled_in_two_steps() -> None:
    images, told = FakeImages(), list[PullProgress]()
    found = await images.pull("any/thing:1", told.append)
    assert tuple(told) == TWO_STEPS
    assert found == await images.held("any/thing:1")
    assert found.digest == (await FakeImages().resolve("any/thing:1")).digest
    assert images.runs(found.run)
    assert (images.pulled, images.resolved, images.removed) == (["any/thing:1"], [], [])


async def test_what_is_withdrawn_is_not_found_until_it_is_served_again() -> None:
    images = FakeImages()
    images.withdraw("thing")
    with pytest.raises(ImageNotFound):
        await images.pull("thing", unheard)
    images.serve("thing")
    await images.pull("thing", unheard)


async def test_a_pull_tells_the_steps_it_was_given() -> None:
    images, told = FakeImages(), list[PullProgress]()
    steps = [PullProgress(None, 5, None), PullProgress(50, 10, 20), PullProgress(40, 10, 25)]
    images.serve("thing", steps=steps)
    await images.pull("thing", told.append)
    assert told == steps


async def test_a_held_pull_goes_on_when_it_is_released() -> None:
    images, told = FakeImages(), list[PullProgress]()
    held = images.hold_pull("thing")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(images.pull, "thing", told.append)
        await held.begun.wait()
        assert tuple(told) == TWO_STEPS[:1]
        assert await images.held("thing") is None
        held.release()
    assert await images.held("thing") is not None


async def test_only_the_next_pull_fails() -> None:
    images = FakeImages()
    images.fail_pull("thing", PullFailed("it broke", fix="try again"))
    with pytest.raises(PullFailed, match="it broke"):
        await images.pull("thing", unheard)
    assert await images.held("thing") is None
    await images.pull("thing", unheard)


async def test_an_image_that_wants_a_token_is_denied_without() -> None:
    images = FakeImages()
    images.serve("quay.io/thing", token="opens")
    with pytest.raises(ImageDenied):
        await images.pull("quay.io/thing", unheard)
    await images.pull("quay.io/thing", unheard, token=RegistryToken("quay.io", "opens"))


async def test_registry_and_engine_come_back() -> None:
    images = FakeImages()
    images.cut_off()
    images.cut_off(False)
    images.take_down()
    images.take_down(False)
    images.keep("thing")
    assert await images.held("thing") is not None


async def test_what_was_removed_does_not_run() -> None:
    images = FakeImages()
    found = await images.pull("thing", unheard)
    images.build("mine:1")
    built = await images.held("mine:1")
    assert built is not None
    assert images.runs(built.run)
    await images.remove(await images.resolve("thing"))
    assert not images.runs(found.run)
    assert images.references() == {"docker.io/library/thing:latest", "docker.io/library/mine:1"}
