"""The image stage of a workload, and pull-image: what is fetched, when, and what is told of it (F19, F22)."""

import logging
from collections.abc import Awaitable, Callable

import attrs
import trio
from msgspec import UNSET

from actors.house import House
from actors.messages import events as e
from actors.patience import Patience
from adapters.images.port import EngineDown, Image, ImageFault, Images, PullProgress

logger = logging.getLogger("best_peer.image")

STEP_PCT = 5
STEP_BYTES = 64 << 20
"""A pull is told when it has moved this far, in bytes where no percentage is known: never a fact a line."""

PACE_SECONDS = 1.0
"""Between two facts of one pull, however its figures jump."""

LAST_PCT = 99
"""What a pull has reached at most before its end, whatever its engine says."""

MOST_ABSENCES = 5
"""How often a container engine may come back and go away again: one that a pull brings down ends it."""

Tell = Callable[[e.Event], Awaitable[None]]
"""Tells a fact of the workload that the image is for, or of the pull-image."""


class ImagesUnavailable(ImageFault):
    """Raised when the runtime has no images: an order from before the peer was started with another."""

    code = "IMAGES_UNAVAILABLE"


async def ensure_image(
    house: House,
    reference: str,
    tell: Tell,
    *,
    deployment: str | None = None,
    job: str | None = None,
    afresh: bool = False,
) -> Image:
    """Have an image ready to be started, fetched where `BEST_PEER_PULL` asks for it, and tell how that goes.

    What is held and not to be fetched: ImagePulling once, at 100, then ImagePulled with `held`. What is
    fetched: ImagePulling as it goes, 99 at most, at 100 just before ImagePulled. A container engine that is
    away is waited for, `Bounds.away` at a stretch. Cancelled at any point, nothing half made is left.

    Args:
        house: whose runtime it is for.
        reference: as it was ordered, or as the engine of a deployment names it.
        tell: tells one fact.
        deployment, job: what the facts name beside the image.
        afresh: fetch it whatever is held, as pull-image does.

    Raises:
        ImageFault: there is none to start; a pull told so far is told no more.
    """
    images = house.runtime.images
    if images is None:
        raise ImagesUnavailable(
            f"this peer's runtime ({house.runtime.name}) runs no containers, so it has no images",
            fix="send it to a peer that runs containers",
        )
    stage = _Stage(
        images,
        reference,
        tell,
        subject={k: v for k, v in (("deployment", deployment), ("job", job)) if v is not None},
    )
    may_be_held = not afresh and (house.pull == "missing" or is_pinned(reference))
    patience, absences = Patience(house.bounds.away), 0
    while True:
        try:
            held = await images.held(reference) if may_be_held else None
            return await stage.fetch(patience) if held is None else await stage.done(held, held=True)
        except EngineDown as down:
            if patience.is_first:
                absences += 1
                logger.warning("the image %s waits: %s", reference, down.reason)
            if absences > MOST_ABSENCES:
                raise
            await patience.wait(down)


def is_pinned(reference: str) -> bool:
    """Whether a reference names one image for good, by its digest, and no tag that may move."""
    return "@" in reference


@attrs.frozen
class _Stage:
    """One image on its way, and whose facts tell of it."""

    images: Images
    reference: str
    tell: Tell
    subject: dict[str, str]

    async def done(self, image: Image, *, held: bool) -> Image:
        await self.tell(self._pulling(progress_pct=100))
        await self.tell(e.ImagePulled(self.reference, image.digest, held, **self.subject))
        return image

    async def fetch(self, patience: Patience) -> Image:
        ends: list[Image | ImageFault] = []
        progress = _Progress(patience)

        async def pull() -> None:
            try:
                ends.append(await self.images.pull(self.reference, progress.note))
            except ImageFault as fault:
                ends.append(fault)
            progress.end()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(pull)
            await self._show(progress)
        if isinstance(ends[0], ImageFault):
            raise ends[0]
        return await self.done(ends[0], held=False)

    async def _show(self, progress: "_Progress") -> None:
        await self.tell(self._pulling())
        told: PullProgress | None = None
        while (now := await progress.beyond(told)) is not None:
            if now.percent is None:
                await self.tell(self._pulling(fetched_bytes=now.bytes_done))
            else:
                percent = min(LAST_PCT, max(0, now.percent))
                await self.tell(self._pulling(progress_pct=percent, fetched_bytes=now.bytes_done))
            told = now
            await progress.rest()

    def _pulling(
        self, *, progress_pct: int | None = None, fetched_bytes: int | None = None
    ) -> e.ImagePulling:
        return e.ImagePulling(
            self.reference,
            progress_pct=UNSET if progress_pct is None else progress_pct,
            fetched_bytes=UNSET if fetched_bytes is None else fetched_bytes,
            **self.subject,
        )


class _Progress:
    """What a pull said last; only the newest matters."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._newest: PullProgress | None = None
        self._moved = trio.Event()
        self._ended = trio.Event()

    def note(self, progress: PullProgress) -> None:
        """Never blocks."""
        self._patience.answered()
        self._newest = progress
        self._moved.set()

    def end(self) -> None:
        """There will be no more."""
        self._ended.set()
        self._moved.set()

    async def beyond(self, told: PullProgress | None) -> PullProgress | None:
        """Wait until it has moved so far that it is told; None once the pull has ended."""
        while not self._ended.is_set():
            if self._newest is not None and _has_moved(told, self._newest):
                return self._newest
            self._moved = trio.Event()
            await self._moved.wait()
        return None

    async def rest(self) -> None:
        """Let some time pass, none once the pull has ended."""
        with trio.move_on_after(PACE_SECONDS):
            await self._ended.wait()


def _has_moved(told: PullProgress | None, now: PullProgress) -> bool:
    """Whether the difference is worth a fact. Figures fall back when the engine learns of more to fetch."""
    if told is None or (told.percent is None) != (now.percent is None):
        return now.percent is not None or now.bytes_done > 0
    if told.percent is not None and now.percent is not None:
        return abs(now.percent - told.percent) >= STEP_PCT
    return abs(now.bytes_done - told.bytes_done) >= STEP_BYTES
