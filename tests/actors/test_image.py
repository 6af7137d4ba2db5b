"""The image stage: what is fetched, what is told of it, and how it fails (F19, F22)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import attrs
import pytest
import trio
import trio.testing
from msgspec import UNSET

from actors.house import Bounds, House
from actors.image import MOST_ABSENCES, ImagesUnavailable, ensure_image
from actors.messages import events as e
from adapters.clock.fake import FakeClock
from adapters.images.port import EngineDown, Image, ImageNotFound, PullProgress
from tests.support.shelves import DIGEST, PINNED, TAG, Shelf, image

if TYPE_CHECKING:
    from collections.abc import Callable

    from adapters.images.port import OnProgress, Pull


@attrs.frozen
class Containers:
    """As much of a runtime as the image stage looks at."""

    images: Shelf | None
    name: str = "docker"


def house_of(shelf: Shelf | None, *, pull: Pull = "always", away: float = 120) -> House:
    unused = cast("Any", None)
    return House(
        store=unused,
        workers=unused,
        clock=FakeClock(),
        runtime=cast("Any", Containers(shelf)),
        engines={},
        gpu=unused,
        bounds=Bounds(away=away),
        pull=pull,
    )


@attrs.define
class Told:
    """The facts that were told, as short words."""

    facts: list[e.Event] = attrs.field(factory=list)

    async def __call__(self, fact: e.Event) -> None:
        await trio.lowlevel.checkpoint()
        self.facts.append(fact)

    @property
    def figures(self) -> list[object]:
        """Of each ImagePulling its percentage, or its bytes where there is none; True or False for held."""
        found: list[object] = []
        for fact in self.facts:
            if isinstance(fact, e.ImagePulled):
                found.append(fact.held)
            else:
                assert isinstance(fact, e.ImagePulling)
                found.append(fact.progress_pct if fact.progress_pct is not UNSET else fact.fetched_bytes)
        return found


@pytest.fixture
def told() -> Told:
    return Told()


async def test_an_image_named_by_tag_is_fetched_though_it_is_held(told: Told) -> None:
    shelf = Shelf(holds={TAG: image(TAG)})
    found = await ensure_image(house_of(shelf), TAG, told, deployment="dep-1")
    assert shelf.pulled == [TAG]
    assert found.run == PINNED
    assert told.facts == [
        e.ImagePulling(TAG, deployment="dep-1"),
        e.ImagePulling(TAG, progress_pct=100, deployment="dep-1"),
        e.ImagePulled(TAG, DIGEST, held=False, deployment="dep-1"),
    ]


@pytest.mark.parametrize(("reference", "pull"), [(TAG, "missing"), (PINNED, "always"), (PINNED, "missing")])
async def test_what_is_held_and_need_not_be_fetched_is_told_once_at_a_hundred(
    told: Told, reference: str, pull: Pull
) -> None:
    shelf = Shelf(holds={reference: image(reference)})
    await ensure_image(house_of(shelf, pull=pull), reference, told, job="job-1")
    assert shelf.pulled == []
    assert told.facts == [
        e.ImagePulling(reference, progress_pct=100, job="job-1"),
        e.ImagePulled(reference, DIGEST, held=True, job="job-1"),
    ]


@pytest.mark.parametrize(("reference", "pull"), [(TAG, "missing"), (PINNED, "always")])
async def test_what_is_not_held_is_fetched(told: Told, reference: str, pull: Pull) -> None:
    shelf = Shelf()
    await ensure_image(house_of(shelf, pull=pull), reference, told)
    assert shelf.pulled == [reference]
    assert told.figures == [UNSET, 100, False]


async def test_a_pull_of_its_own_fetches_whatever_is_held(told: Told) -> None:
    shelf = Shelf(holds={PINNED: image(PINNED)})
    await ensure_image(house_of(shelf, pull="missing"), PINNED, told, afresh=True)
    assert shelf.pulled == [PINNED]
    assert told.figures[-1] is False


async def pulling(shelf: Shelf, told: Told, then: Callable[[], Any]) -> None:
    """Run `then` while a pull is under way, and let it come to its end."""
    gate = shelf.hold_pulls()
    async with trio.open_nursery() as nursery:

        async def ensure() -> None:
            await ensure_image(house_of(shelf), TAG, told)

        nursery.start_soon(ensure)
        await trio.testing.wait_all_tasks_blocked()
        await then()
        gate.set()


async def test_progress_is_told_in_steps_and_never_past_99_before_the_end(told: Told) -> None:
    shelf = Shelf()

    async def go() -> None:
        for percent in (1, 2, 3, 6, 7, 11, 99, 100, 100):
            await shelf.say(percent, percent * 1000)

    await pulling(shelf, told, go)
    assert told.figures == [UNSET, 1, 6, 11, 99, 100, False]


async def test_progress_may_fall_back(told: Told) -> None:
    shelf = Shelf()

    async def go() -> None:
        for percent in (50, 48, 20, 60):
            await shelf.say(percent)

    await pulling(shelf, told, go)
    assert told.figures == [UNSET, 50, 20, 60, 100, False]


async def test_while_the_total_is_unknown_bytes_are_told(told: Told) -> None:
    shelf, mib = Shelf(), 1 << 20

    async def go() -> None:
        for done in (0, 1 * mib, 2 * mib, 64 * mib, 65 * mib, 200 * mib):
            await shelf.say(None, done)
        await shelf.say(70, 210 * mib)

    await pulling(shelf, told, go)
    assert told.figures == [UNSET, mib, 65 * mib, 200 * mib, 70, 100, False]


async def test_ten_thousand_lines_in_a_moment_are_a_few_facts(told: Told) -> None:
    shelf = Shelf()

    async def go() -> None:
        assert shelf.says is not None
        for n in range(10_000):
            shelf.says(PullProgress(n % 100, n, None))
        await trio.testing.wait_all_tasks_blocked(0.002)

    await pulling(shelf, told, go)
    assert len(told.facts) <= 4


async def test_a_fault_is_raised_bare_and_nothing_more_is_told(told: Told) -> None:
    shelf = Shelf(faults=[ImageNotFound("no such image", fix="name another")])
    with pytest.raises(ImageNotFound):
        await ensure_image(house_of(shelf), TAG, told)
    assert told.figures == [UNSET]


async def test_an_engine_that_comes_back_is_asked_again(told: Told) -> None:
    down = [EngineDown("nobody answers", fix="start it") for _ in range(3)]
    shelf = Shelf(faults=list(down))
    await ensure_image(house_of(shelf), TAG, told)
    assert shelf.pulled == [TAG] * 4
    assert told.figures[-2:] == [100, False]


async def test_an_engine_that_stays_away_fails_in_the_end(told: Told, autojump_clock: object) -> None:
    shelf = Shelf(faults=[EngineDown("nobody answers", fix="start it") for _ in range(100_000)])
    with pytest.raises(EngineDown):
        await ensure_image(house_of(shelf, away=0.1), TAG, told)
    assert trio.current_time() >= 0.1


async def test_an_engine_that_each_pull_brings_down_is_not_asked_for_ever(told: Told) -> None:
    @attrs.define(eq=False)
    class Fragile(Shelf):
        async def pull(self, reference: str, on_progress: OnProgress, **more: Any) -> Image:
            self.pulled.append(reference)
            on_progress(PullProgress(10, 1, 10))
            await trio.lowlevel.checkpoint()
            raise EngineDown("it broke off", fix="start it")

    shelf = Fragile()
    with pytest.raises(EngineDown):
        await ensure_image(house_of(shelf), TAG, told)
    assert len(shelf.pulled) == 1 + MOST_ABSENCES


async def test_a_runtime_of_no_images_is_told_apart(told: Told) -> None:
    with pytest.raises(ImagesUnavailable, match="docker"):
        await ensure_image(house_of(None), TAG, told)
    assert told.facts == []


async def test_a_cancelled_pull_ends_and_tells_no_more(told: Told) -> None:
    shelf = Shelf()
    shelf.hold_pulls()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def ensure() -> None:
                await ensure_image(house_of(shelf), TAG, told)

            nursery.start_soon(ensure)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert shelf.says is None
    assert told.figures == [UNSET]
