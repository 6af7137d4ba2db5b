"""Images that a test holds in its hand: what is held, how a pull goes on, how it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import trio
import trio.testing

from adapters.images.port import Image, ImageFault, InvalidReference, PullProgress

if TYPE_CHECKING:
    from adapters.images.port import OnProgress

TAG = "registry.test/small:1"
DIGEST = "sha256:" + "a" * 64
PINNED = f"registry.test/small@{DIGEST}"


@attrs.define(eq=False)
class Shelf:
    """The images of an engine, by hand. A pull ends at once unless a test holds it up."""

    holds: dict[str, Image] = attrs.field(factory=dict)
    faults: list[ImageFault] = attrs.field(factory=list)
    """What the next calls raise, one each."""
    pulled: list[str] = attrs.field(factory=list)
    says: OnProgress | None = None
    """Set while a pull is under way."""
    _gate: trio.Event | None = attrs.field(default=None, init=False)

    def hold_pulls(self) -> trio.Event:
        """Let every pull wait until the returned event is set."""
        self._gate = trio.Event()
        return self._gate

    def check(self, reference: str) -> None:
        """Every text is a reference but one with a space."""
        if " " in reference:
            raise InvalidReference(f"{reference} is no image", fix="name one")

    async def held(self, reference: str) -> Image | None:
        """What a test put there."""
        await trio.lowlevel.checkpoint()
        if self.faults:
            raise self.faults.pop(0)
        return self.holds.get(reference)

    async def pull(self, reference: str, on_progress: OnProgress, **more: Any) -> Image:
        """Wait for the gate, then fail as asked or have the image."""
        self.pulled.append(reference)
        self.says = on_progress
        try:
            if self._gate is not None:
                await self._gate.wait()
            await trio.lowlevel.checkpoint()
        finally:
            self.says = None
        if self.faults:
            raise self.faults.pop(0)
        return image(reference)

    async def say(self, percent: int | None, done: int = 0, total: int | None = None) -> None:
        """Let the pull say this, and whoever listens act on it."""
        assert self.says is not None
        self.says(PullProgress(percent, done, total))
        await trio.testing.wait_all_tasks_blocked(0.002)


def image(reference: str) -> Image:
    """What a pull of it gives."""
    return Image(reference, PINNED, DIGEST)
