"""Images of a registry and an engine that live in memory, scripted by plain methods."""

import hashlib
from collections.abc import Sequence
from typing import Final

import attrs
import trio

from adapters.images.port import (
    EngineDown,
    Image,
    ImageDenied,
    ImageFault,
    ImageNotFound,
    ImageUnusable,
    NoRoom,
    OnProgress,
    Pinned,
    PullLimits,
    PullProgress,
    RegistryToken,
    RegistryUnreachable,
    RoomUnknown,
    TooLarge,
)
from adapters.images.reference import Reference, parse

SIZE_BYTES: Final = 1000
TWO_STEPS: Final = (PullProgress(40, 400, 1000), PullProgress(99, 1000, 1000))
FREE_BYTES: Final = 1_000_000


@attrs.frozen
class ServedImage:
    """What the fake's registry serves under a reference.

    Args:
        steps: what a pull of it tells on its way.
        size_bytes: what it takes on the engine's disk.
        is_usable: whether it is for this kind of machine.
        token: what it asks for; None for nothing.
    """

    digest: str
    steps: tuple[PullProgress, ...] = TWO_STEPS
    size_bytes: int = SIZE_BYTES
    is_usable: bool = True
    token: str | None = attrs.field(default=None, repr=False)


@attrs.define(eq=False)
class HeldPull:
    """A pull that waits after its first step: `begun` is set when it does, and `release` lets it go on."""

    begun: trio.Event = attrs.field(factory=trio.Event)
    _released: trio.Event = attrs.field(factory=trio.Event)

    def release(self) -> None:
        self._released.set()

    async def wait(self) -> None:
        self.begun.set()
        await self._released.wait()


@attrs.define(eq=False)
class FakeImages:
    """An `Images` with its registry and its engine in memory.

    Unless told otherwise its registry serves every reference, each with a digest of its own that stays the
    same, and a pull tells of two steps. What was asked of it stands in `resolved`, `pulled` and `removed`.

    Args:
        serves_all: whether a reference nobody served is found.
        free_bytes: the room on the engine's disk, None when it is not to be known.
    """

    serves_all: bool = True
    free_bytes: int | None = FREE_BYTES
    resolved: list[str] = attrs.field(factory=list, init=False)
    pulled: list[str] = attrs.field(factory=list, init=False)
    removed: list[str] = attrs.field(factory=list, init=False)
    _is_down: bool = attrs.field(default=False, init=False)
    _is_cut_off: bool = attrs.field(default=False, init=False)
    _served: dict[str, ServedImage] = attrs.field(factory=dict, init=False)
    _withdrawn: set[str] = attrs.field(factory=set, init=False)
    _faults: dict[str, ImageFault] = attrs.field(factory=dict, init=False)
    _held_pulls: dict[str, HeldPull] = attrs.field(factory=dict, init=False)
    _digests: dict[str, ServedImage] = attrs.field(factory=dict, init=False)
    """What the engine holds, by `name@digest` in full."""
    _tags: dict[str, str | None] = attrs.field(factory=dict, init=False)
    """The engine's tags, `name:tag` in full, each with its digest; None for one built by hand."""
    _in_use: set[str] = attrs.field(factory=set, init=False)

    def serve(
        self,
        reference: str,
        *,
        digest: str | None = None,
        steps: Sequence[PullProgress] = TWO_STEPS,
        size_bytes: int = SIZE_BYTES,
        is_usable: bool = True,
        token: str | None = None,
    ) -> str:
        """Have the registry serve an image under a reference, by tag and by digest; its digest."""
        asked = parse(reference)
        image = ServedImage(
            asked.digest or digest or digest_of(str(asked)), tuple(steps), size_bytes, is_usable, token
        )
        for key in (str(asked), asked.at(image.digest)):
            self._served[key] = image
            self._withdrawn.discard(key)
        return image.digest

    def withdraw(self, reference: str) -> None:
        """Have the registry serve it no more."""
        asked = str(parse(reference))
        self._served.pop(asked, None)
        self._withdrawn.add(asked)

    def fail_pull(self, reference: str, fault: ImageFault) -> None:
        """Have the next pull of it break off with a fault, after its first step."""
        self._faults[str(parse(reference))] = fault

    def hold_pull(self, reference: str) -> HeldPull:
        """Have the next pull of it wait after its first step."""
        held = self._held_pulls[str(parse(reference))] = HeldPull()
        return held

    def keep(self, reference: str) -> str:
        """Have the engine hold what the registry serves under a reference, as after a pull; its digest."""
        asked = parse(reference)
        image = self._serving(asked)
        assert image is not None, f"the registry serves no {reference}"
        self._store(asked, image)
        return image.digest

    def build(self, reference: str) -> None:
        """Have the engine hold an image built on it, which no registry gave a digest."""
        self._tags[str(parse(reference))] = None

    def use(self, reference: str) -> None:
        """Have a container use what the engine holds under a reference."""
        asked = parse(reference)
        self._in_use.add(asked.at(asked.digest or self._tags[str(asked)] or ""))

    def cut_off(self, is_cut_off: bool = True) -> None:
        """Have no registry answer, or answer again."""
        self._is_cut_off = is_cut_off

    def take_down(self, is_down: bool = True) -> None:
        """Have the engine itself not answer, or answer again."""
        self._is_down = is_down

    def references(self) -> frozenset[str]:
        """Every tag and digest that the engine holds an image under, spelled in full."""
        return frozenset(self._tags) | frozenset(self._digests)

    def runs(self, run: str) -> bool:
        """Whether the engine has what `Image.run` says."""
        if run.startswith("sha256:"):
            return any(digest is None and run == _id_of(tag) for tag, digest in self._tags.items())
        return str(parse(run)) in self._digests

    def check(self, reference: str) -> None:
        """See `Images.check`."""
        parse(reference)

    async def resolve(self, reference: str, *, token: RegistryToken | None = None) -> Pinned:
        """See `Images.resolve`."""
        asked = parse(reference)
        await self._engine_answers()
        image = self._ask_registry(asked, token)
        self.resolved.append(reference)
        return asked.pinned(image.digest)

    async def held(self, reference: str) -> Image | None:
        """See `Images.held`."""
        asked = parse(reference)
        await self._engine_answers()
        return self._look(asked)

    async def pull(
        self,
        reference: str,
        on_progress: OnProgress,
        *,
        token: RegistryToken | None = None,
        limits: PullLimits | None = None,
    ) -> Image:
        """See `Images.pull`."""
        asked = parse(reference)
        await self._engine_answers()
        image = self._ask_registry(asked, token)
        self.pulled.append(reference)
        if asked.at(image.digest) not in self._digests:
            self._check_floor(asked, limits, 0)
            await self._fetch(asked, image, on_progress, limits)
        self._store(asked, image)
        found = self._look(asked)
        assert found is not None
        return found

    async def remove(self, pinned: Pinned) -> None:
        """See `Images.remove`."""
        asked = parse(str(pinned))
        await self._engine_answers()
        if str(asked) in self._in_use:
            raise ImageFault(f"a container uses {pinned}", fix="end the workload that uses it first")
        self.removed.append(str(pinned))
        self._digests.pop(str(asked), None)

    async def _fetch(
        self, asked: Reference, image: ServedImage, on_progress: OnProgress, limits: PullLimits | None
    ) -> None:
        gate, fault = self._held_pulls.pop(str(asked), None), self._faults.pop(str(asked), None)
        for count, step in enumerate(image.steps):
            await self._engine_answers()
            on_progress(step)
            if count == 0:
                if gate is not None:
                    await gate.wait()
                if fault is not None:
                    raise fault
        if not image.is_usable:
            raise _unusable(asked)
        if limits is not None and limits.most_bytes is not None and image.size_bytes > limits.most_bytes:
            raise TooLarge(
                f"{asked.text} takes {image.size_bytes} bytes and may take {limits.most_bytes}",
                fix="name a smaller image",
                limit_bytes=limits.most_bytes,
            )
        self._check_floor(asked, limits, image.size_bytes)

    def _check_floor(self, asked: Reference, limits: PullLimits | None, size_bytes: int) -> None:
        floor = limits.least_free_bytes if limits is not None else None
        if floor is None:
            return
        if self.free_bytes is None:
            raise RoomUnknown("the engine's disk cannot be read from here", fix="pull without a floor")
        if self.free_bytes - size_bytes < floor:
            raise NoRoom(f"{asked.text} would leave less than {floor} bytes free", fix="free some room")

    def _store(self, asked: Reference, image: ServedImage) -> None:
        self._digests[asked.at(image.digest)] = image
        if asked.tag is not None:
            self._tags[str(asked)] = image.digest

    def _look(self, asked: Reference) -> Image | None:
        if asked.digest is None and str(asked) not in self._tags:
            return None
        digest = asked.digest or self._tags[str(asked)]
        if digest is None:
            return Image(asked.text, _id_of(str(asked)), None)
        image = self._digests.get(asked.at(digest))
        if image is None:
            # Its digest was removed and its tag stays: the engine has it, and cannot say whose it is.
            return Image(asked.text, _id_of(str(asked)), None) if asked.digest is None else None
        if not image.is_usable:
            raise _unusable(asked)
        return Image(asked.text, str(asked.pinned(digest)), digest)

    def _ask_registry(self, asked: Reference, token: RegistryToken | None) -> ServedImage:
        if token is not None and not asked.is_served_by(token.registry):
            raise ImageDenied(
                f"the token is for {token.registry} and {asked.text} is served by {asked.registry}",
                fix="send a token of the image's own registry",
            )
        if self._is_cut_off:
            raise RegistryUnreachable(f"{asked.registry} does not answer", fix="try again later")
        image = self._serving(asked)
        if image is None:
            raise ImageNotFound(f"{asked.registry} serves no {asked.text}", fix="check its name and tag")
        if image.token is not None and (token is None or token.token != image.token):
            raise ImageDenied(f"{asked.registry} refuses {asked.text}", fix="send a token that opens it")
        return image

    def _serving(self, asked: Reference) -> ServedImage | None:
        key = str(asked)
        if key in self._withdrawn:
            return None
        if key in self._served:
            return self._served[key]
        return ServedImage(asked.digest or digest_of(key)) if self.serves_all else None

    async def _engine_answers(self) -> None:
        await trio.lowlevel.checkpoint()
        if self._is_down:
            raise EngineDown("the container engine does not answer", fix="start it")


def digest_of(text: str) -> str:
    """The digest that the fake gives what nobody gave one."""
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _id_of(tag: str) -> str:
    return digest_of(f"id {tag}")


def _unusable(asked: Reference) -> ImageUnusable:
    return ImageUnusable(
        f"{asked.text} is for another kind of machine", fix="name an image for this architecture"
    )
