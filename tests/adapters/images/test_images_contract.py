"""What images promise, kept by a real engine with a real registry and by the fake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from adapters.images.port import (
    EngineDown,
    Image,
    ImageDenied,
    ImageFault,
    ImageNotFound,
    ImageUnusable,
    InvalidReference,
    NoRoom,
    Pinned,
    PullFailed,
    PullLimits,
    PullProgress,
    RegistryToken,
    RegistryUnreachable,
    RoomUnknown,
    TooLarge,
)

if TYPE_CHECKING:
    from tests.adapters.images.worlds import World

NOWHERE = "sha256:" + "0" * 64
MORE_THAN_ANY_DISK = 1 << 60
PLENTY = 10_000_000_000
"""What else is written to the engine's disk meanwhile counts as well: other tests run beside these."""


def unheard(progress: PullProgress) -> None:
    """Progress that nobody asks for."""


async def test_a_tag_resolves_to_what_it_names_now(world: World) -> None:
    reference = f"{world.repository}:1"
    first = world.publish("1", "one")
    assert await world.images.resolve(reference) == Pinned(world.repository, first)
    second = world.publish("1", "two")
    assert await world.images.resolve(reference) == Pinned(world.repository, second)
    assert first != second


async def test_a_pinned_reference_resolves_to_itself(world: World) -> None:
    digest = world.publish("1")
    pinned = Pinned(world.repository, digest)
    assert await world.images.resolve(str(pinned)) == pinned
    # A tag beside a digest counts for nothing.
    assert await world.images.resolve(f"{world.repository}:other@{digest}") == pinned


async def test_resolving_fetches_nothing(world: World) -> None:
    world.publish("1")
    pinned = await world.images.resolve(f"{world.repository}:1")
    assert await world.images.held(f"{world.repository}:1") is None
    assert await world.images.held(str(pinned)) is None
    assert await world.references() == set()


async def test_what_the_registry_does_not_serve_is_not_found(world: World) -> None:
    world.publish("1")
    for reference in (f"{world.repository}:2", f"{world.repository}@{NOWHERE}", f"{world.repository}/none:1"):
        with pytest.raises(ImageNotFound) as caught:
            await world.images.resolve(reference)
        assert reference in caught.value.reason
        with pytest.raises(ImageNotFound):
            await world.images.pull(reference, unheard)


async def test_the_registry_counts_and_not_what_the_engine_holds(world: World) -> None:
    digest = world.publish("1")
    await world.images.pull(f"{world.repository}:1", unheard)
    world.withdraw("1", digest)
    for reference in (f"{world.repository}:1", f"{world.repository}@{digest}"):
        with pytest.raises(ImageNotFound):
            await world.images.resolve(reference)
        with pytest.raises(ImageNotFound):
            await world.images.pull(reference, unheard)
        held = await world.images.held(reference)
        assert held is not None
        assert held.digest == digest


async def test_a_text_that_is_no_reference_is_told(world: World) -> None:
    for text in ("", "Thing", "a b", "thing@sha256:1", "http://x/y"):
        for ask in (world.images.resolve, world.images.held):
            with pytest.raises(InvalidReference):
                await ask(text)
        with pytest.raises(InvalidReference):
            await world.images.pull(text, unheard)
        with pytest.raises(InvalidReference):
            world.images.check(text)
    world.images.check(f"{world.repository}:1")
    assert world.asked() == 0


async def test_what_is_pulled_by_tag_is_held_by_tag_and_by_digest(world: World) -> None:
    digest = world.publish("1")
    reference, pinned = f"{world.repository}:1", f"{world.repository}@{digest}"
    assert await world.images.pull(reference, unheard) == Image(reference, pinned, digest)
    assert await world.images.held(reference) == Image(reference, pinned, digest)
    assert await world.images.held(pinned) == Image(pinned, pinned, digest)
    assert await world.references() == {reference, pinned}


async def test_what_is_pulled_by_digest_gets_no_tag(world: World) -> None:
    digest = world.publish("1")
    pinned = f"{world.repository}@{digest}"
    assert await world.images.pull(pinned, unheard) == Image(pinned, pinned, digest)
    assert await world.images.held(f"{world.repository}:1") is None
    assert await world.references() == {pinned}


async def test_a_pull_moves_the_tag_and_keeps_what_it_named(world: World) -> None:
    reference = f"{world.repository}:1"
    first = world.publish("1", "one")
    await world.images.pull(reference, unheard)
    second = world.publish("1", "two")
    held = await world.images.held(reference)
    assert held is not None
    assert held.digest == first
    assert (await world.images.pull(reference, unheard)).digest == second
    held = await world.images.held(reference)
    assert held is not None
    assert held.digest == second
    assert await world.images.held(f"{world.repository}@{first}") is not None


async def test_only_the_tag_that_is_asked_for_is_pulled(world: World) -> None:
    latest, other = world.publish("latest", "one"), world.publish("other", "two")
    assert (await world.images.pull(world.repository, unheard)).digest == latest
    assert await world.images.held(f"{world.repository}:latest") is not None
    assert await world.images.held(f"{world.repository}@{other}") is None


async def test_a_digest_is_held_under_its_own_repository_alone(world: World) -> None:
    digest = world.publish("1")
    await world.images.pull(f"{world.repository}:1", unheard)
    assert await world.images.held(f"{world.repository}:any@{digest}") is not None
    assert await world.images.held(f"{world.repository}-2@{digest}") is None
    assert await world.images.held(f"thing@{digest}") is None
    assert await world.images.held(f"{world.repository}:2") is None


async def test_an_image_built_by_hand_is_held_without_a_digest(world: World) -> None:
    name = world.repository.rpartition("/")[2] + "-built"
    await world.build(f"{name}:1")
    for spelled in (f"{name}:1", f"docker.io/{name}:1", f"index.docker.io/library/{name}:1"):
        held = await world.images.held(spelled)
        assert held is not None
        assert (held.reference, held.digest) == (spelled, None)
        assert held.run.startswith("sha256:")
    assert await world.images.held(f"{name}@{NOWHERE}") is None
    assert await world.images.held(f"quay.io/{name}:1") is None


async def test_progress_is_told_and_is_99_percent_at_most(world: World) -> None:
    world.publish("1")
    told: list[PullProgress] = []
    await world.images.pull(f"{world.repository}:1", told.append)
    assert told
    assert all(one.percent is None or 0 <= one.percent <= 99 for one in told)
    assert all(one.bytes_total is None or one.bytes_done <= one.bytes_total for one in told)
    assert told[-1].percent == 99
    assert told[-1].bytes_done == told[-1].bytes_total
    assert told[-1].bytes_done > 0


async def test_what_is_held_is_not_fetched_again(world: World) -> None:
    digest = world.publish("1")
    world.publish("2")
    await world.images.pull(f"{world.repository}:1", unheard)
    told: list[PullProgress] = []
    assert (await world.images.pull(f"{world.repository}:2", told.append)).digest == digest
    assert not any(one.bytes_done for one in told)


async def test_an_image_for_another_machine_is_of_no_use_and_does_not_stay(world: World) -> None:
    digest = world.publish("1", is_usable=False)
    for reference in (f"{world.repository}:1", f"{world.repository}@{digest}"):
        with pytest.raises(ImageUnusable) as caught:
            await world.images.pull(reference, unheard)
        assert "architecture" in caught.value.fix
        assert await world.references() == set()


async def test_a_tag_stays_where_it_was_when_the_new_image_is_of_no_use(world: World) -> None:
    first = world.publish("1", "one")
    await world.images.pull(f"{world.repository}:1", unheard)
    world.publish("1", "two", is_usable=False)
    with pytest.raises(ImageUnusable):
        await world.images.pull(f"{world.repository}:1", unheard)
    assert await world.references() == {f"{world.repository}:1", f"{world.repository}@{first}"}
    held = await world.images.held(f"{world.repository}:1")
    assert held is not None
    assert held.digest == first


async def test_an_image_for_another_machine_that_is_held_is_of_no_use_and_stays(world: World) -> None:
    digest = world.publish("1", is_usable=False)
    await world.keep(f"{world.repository}:1")
    for reference in (f"{world.repository}:1", f"{world.repository}@{digest}"):
        with pytest.raises(ImageUnusable):
            await world.images.held(reference)
        with pytest.raises(ImageUnusable):
            await world.images.pull(reference, unheard)
    assert await world.references() == {f"{world.repository}:1", f"{world.repository}@{digest}"}


async def test_a_pull_that_breaks_off_fails_and_leaves_nothing(world: World) -> None:
    world.publish("1")
    world.break_pull("1")
    with pytest.raises(PullFailed) as caught:
        await world.images.pull(f"{world.repository}:1", unheard)
    assert caught.value.fix
    assert await world.references() == set()


async def test_a_pull_that_is_cancelled_leaves_nothing(world: World) -> None:
    world.publish("1")
    held = world.hold_pull("1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.images.pull, f"{world.repository}:1", unheard)
        await held.begun.wait()
        nursery.cancel_scope.cancel()
    held.release()
    assert await world.references() == set()
    assert await world.images.held(f"{world.repository}:1") is None


async def test_of_two_pulls_of_one_image_one_may_be_cancelled(world: World) -> None:
    digest = world.publish("1")
    held = world.hold_pull("1")
    found: list[Image] = []

    async def stay() -> None:
        found.append(await world.images.pull(f"{world.repository}@{digest}", unheard))

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as left:
            async with trio.open_nursery() as leaving:
                leaving.start_soon(world.images.pull, f"{world.repository}:1", unheard)
                nursery.start_soon(stay)
                await held.begun.wait()
                left.cancel()
        held.release()
    assert found == [Image(f"{world.repository}@{digest}", f"{world.repository}@{digest}", digest)]
    assert await world.images.held(f"{world.repository}@{digest}") is not None


async def test_a_registry_that_is_away_is_unreachable_whatever_is_held(world: World) -> None:
    world.publish("1")
    await world.images.pull(f"{world.repository}:1", unheard)
    await world.cut_off()
    with pytest.raises(RegistryUnreachable):
        await world.images.resolve(f"{world.repository}:1")
    with pytest.raises(RegistryUnreachable):
        await world.images.pull(f"{world.repository}:1", unheard)
    assert await world.images.held(f"{world.repository}:1") is not None


async def test_a_token_opens_its_own_repository(world: World) -> None:
    reference, token = world.guard()
    # To who shows nothing a registry may not even say that there is such an image.
    for wrong, faults in (
        (None, (ImageDenied, ImageNotFound)),
        (RegistryToken(token.registry, "another"), (ImageDenied,)),
    ):
        with pytest.raises(faults) as caught:
            await world.images.resolve(reference, token=wrong)
        assert "another" not in str(caught.value)
        with pytest.raises(faults):
            await world.images.pull(reference, unheard, token=wrong)
    pinned = await world.images.resolve(reference, token=token)
    assert (await world.images.pull(reference, unheard, token=token)).run == str(pinned)
    assert await world.images.held(reference) is not None


async def test_a_token_is_shown_to_no_registry_but_its_own(world: World) -> None:
    world.publish("1")
    token = RegistryToken("other.example", "hidden")
    for reference in (f"{world.repository}:1", f"{world.repository}@{NOWHERE}"):
        with pytest.raises(ImageDenied, match="the token is for other") as caught:
            await world.images.resolve(reference, token=token)
        assert "hidden" not in repr(caught.value)
        with pytest.raises(ImageDenied):
            await world.images.pull(reference, unheard, token=token)
    assert world.asked() == 0


async def test_an_image_past_its_bound_is_too_large_and_leaves_nothing(world: World) -> None:
    first = world.publish("1", "one")
    await world.images.pull(f"{world.repository}:1", unheard)
    second = world.publish("1", "two")
    limits = PullLimits(most_bytes=100_000)
    for reference in (f"{world.repository}:1", f"{world.repository}@{second}"):
        with pytest.raises(TooLarge) as caught:
            await world.images.pull(reference, unheard, limits=limits)
        assert caught.value.limit_bytes == 100_000
    assert await world.references() == {f"{world.repository}:1", f"{world.repository}@{first}"}
    held = await world.images.held(f"{world.repository}:1")
    assert held is not None
    assert held.digest == first


async def test_an_image_within_its_bound_is_pulled(world: World) -> None:
    world.publish("1")
    limits = PullLimits(most_bytes=PLENTY, least_free_bytes=1)
    assert (await world.images.pull(f"{world.repository}:1", unheard, limits=limits)).digest is not None


async def test_an_image_that_is_held_is_held_to_no_bound(world: World) -> None:
    digest = world.publish("1")
    await world.images.pull(f"{world.repository}@{digest}", unheard)
    limits = PullLimits(most_bytes=1, least_free_bytes=MORE_THAN_ANY_DISK)
    assert (await world.images.pull(f"{world.repository}:1", unheard, limits=limits)).digest == digest


async def test_a_floor_that_cannot_be_kept_is_no_room_and_nothing_is_fetched(world: World) -> None:
    world.publish("1")
    told: list[PullProgress] = []
    with pytest.raises(NoRoom):
        await world.images.pull(
            f"{world.repository}:1", told.append, limits=PullLimits(least_free_bytes=MORE_THAN_ANY_DISK)
        )
    assert told == []
    assert await world.references() == set()


async def test_a_floor_where_the_room_is_unknown_is_refused(world: World) -> None:
    world.publish("1")
    images = world.without_room()
    with pytest.raises(RoomUnknown):
        await images.pull(f"{world.repository}:1", unheard, limits=PullLimits(least_free_bytes=1))
    assert await world.references() == set()


async def test_a_bound_holds_where_the_room_is_unknown(world: World) -> None:
    world.publish("1")
    images = world.without_room()
    with pytest.raises(TooLarge):
        await images.pull(f"{world.repository}:1", unheard, limits=PullLimits(most_bytes=100_000))
    assert await world.references() == set()
    await images.pull(f"{world.repository}:1", unheard, limits=PullLimits(most_bytes=PLENTY))


async def test_removing_a_digest_leaves_its_tag(world: World) -> None:
    digest = world.publish("1")
    await world.images.pull(f"{world.repository}:1", unheard)
    await world.images.remove(Pinned(world.repository, digest))
    assert await world.images.held(f"{world.repository}@{digest}") is None
    held = await world.images.held(f"{world.repository}:1")
    assert held is not None
    assert held.digest is None
    assert await world.references() == {f"{world.repository}:1"}


async def test_removing_the_last_reference_removes_the_image(world: World) -> None:
    digest = world.publish("1")
    await world.images.pull(f"{world.repository}@{digest}", unheard)
    await world.images.remove(Pinned(world.repository, digest))
    assert await world.references() == set()
    assert await world.images.held(f"{world.repository}@{digest}") is None


async def test_removing_one_digest_leaves_the_others(world: World) -> None:
    first, second = world.publish("1", "one"), world.publish("2", "two")
    for digest in (first, second):
        await world.images.pull(f"{world.repository}@{digest}", unheard)
    await world.images.remove(Pinned(world.repository, first))
    assert await world.references() == {f"{world.repository}@{second}"}


async def test_removing_what_is_not_held_is_no_error(world: World) -> None:
    await world.images.remove(Pinned(world.repository, NOWHERE))


async def test_an_image_that_a_container_uses_is_not_removed(world: World) -> None:
    digest = world.publish("1")
    await world.images.pull(f"{world.repository}@{digest}", unheard)
    await world.use(f"{world.repository}@{digest}")
    with pytest.raises(ImageFault) as caught:
        await world.images.remove(Pinned(world.repository, digest))
    assert not isinstance(caught.value, EngineDown)
    assert "uses it" in caught.value.fix
    assert await world.images.held(f"{world.repository}@{digest}") is not None


async def test_an_engine_that_does_not_answer_is_down(world: World) -> None:
    digest = world.publish("1")
    images = world.without_engine()
    with pytest.raises(EngineDown):
        await images.resolve(f"{world.repository}:1")
    with pytest.raises(EngineDown):
        await images.held(f"{world.repository}:1")
    with pytest.raises(EngineDown):
        await images.pull(f"{world.repository}:1", unheard)
    with pytest.raises(EngineDown) as caught:
        await images.remove(Pinned(world.repository, digest))
    assert caught.value.fix
