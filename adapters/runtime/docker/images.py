"""The images of a Docker Engine (F22).

An image is always fetched by its digest, and tagged when all is well: so a tag that named an image before
names it still when the new one turns out to be too large, or for another machine. To the engine a reference
is always spelled in full, with its tag: a short one could be taken for the beginning of an image's id.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from adapters.images.port import (
    EngineDown,
    Image,
    ImageDenied,
    ImageFault,
    InvalidReference,
    OnProgress,
    Pinned,
    PullFailed,
    PullLimits,
    RegistryToken,
    RegistryUnreachable,
)
from adapters.images.reference import Reference, is_digest, parse
from adapters.runtime.docker.client import CALL_SECONDS, DockerClient
from adapters.runtime.docker.faults import BadAnswer, DockerFault, EngineError, EngineGone, EngineHung
from adapters.runtime.docker.pulls import Pull, Puller, Pulls, authorisation
from adapters.runtime.docker.registry_faults import resolve_fault, unusable
from adapters.runtime.docker.room import ROOM_SECONDS, Gauge, image_folder

RESOLVE_SECONDS: Final = 30.0
"""How long a registry may take to say what a reference names; the engine itself waits without end."""
TAKE_BACK_SECONDS: Final = 30.0
"""Bound of looking at what a pull left, and of removing what should not stay."""
SETTLE_SECONDS: Final = 0.5
"""How long an engine may take to notice that a pull was given up: it may be just writing the image down."""

_RUNS_ON: Final[Mapping[str, frozenset[str]]] = {"amd64": frozenset({"amd64", "386"})}
"""What a machine runs beside its own architecture."""

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class DockerImages:
    """`Images` of the engine behind a client.

    Args:
        client: open as long as this is used.
        pulls: those under way at this engine, with the bound of their silence.
        resolve_seconds: how long a registry may take to answer.
        room_seconds: how often the engine's disk is read while a pull is held to limits.
    """

    client: DockerClient
    pulls: Pulls = attrs.field(factory=Pulls)
    resolve_seconds: float = RESOLVE_SECONDS
    room_seconds: float = ROOM_SECONDS

    def check(self, reference: str) -> None:
        """See `Images.check`."""
        parse(reference)

    async def resolve(self, reference: str, *, token: RegistryToken | None = None) -> Pinned:
        """See `Images.resolve`."""
        asked = parse(reference)
        return asked.pinned(await self._digest(asked, token))

    async def held(self, reference: str) -> Image | None:
        """See `Images.held`."""
        asked = parse(reference)
        found = await self._inspect(asked)
        return self._image(asked, found) if found is not None else None

    async def pull(
        self,
        reference: str,
        on_progress: OnProgress,
        *,
        token: RegistryToken | None = None,
        limits: PullLimits | None = None,
    ) -> Image:
        """See `Images.pull`. A tag is moved when its new image is whole, held to the limits and of use."""
        asked = parse(reference)
        digest = await self._digest(asked, token)
        pinned = attrs.evolve(asked, tag=None, digest=digest)
        found = await self._inspect(pinned)
        if found is None:
            found = await self._fetch(pinned, on_progress, token, limits)
        self._check_machine(asked, found)
        if asked.tag is not None:
            await self._tag(asked, digest)
        return Image(reference, str(asked.pinned(digest)), digest)

    async def remove(self, pinned: Pinned) -> None:
        """See `Images.remove`."""
        asked = parse(str(pinned))
        if asked.digest is None:
            raise InvalidReference(f"{pinned} names no digest", fix="remove an image by its digest alone")
        try:
            # By its reference and never by force: the engine unties the digest, and removes the image with
            # its last reference.
            await self._ask("DELETE", f"/images/{asked}", ok=(404,), again=True)
        except EngineError as error:
            raise ImageFault(
                f"the container engine does not remove {pinned}: {error.message}",
                fix="end what uses it first" if error.status == 409 else "see what the engine says",
            ) from error

    async def _digest(self, asked: Reference, token: RegistryToken | None) -> str:
        if token is not None and not asked.is_served_by(token.registry):
            raise ImageDenied(
                f"{asked.text} is served by {asked.registry}, and the token is for {token.registry}: "
                "nothing was asked",
                fix="send a token of the image's own registry, or none",
            )
        answer = await self._ask_registry(asked, token)
        descriptor = answer.get("Descriptor") if isinstance(answer, dict) else None
        digest = descriptor.get("digest") if isinstance(descriptor, dict) else None
        if not isinstance(digest, str) or not is_digest(digest):
            raise RegistryUnreachable(
                f"{asked.registry} gives {asked.text} no digest that can be used",
                fix="push the image to a registry that speaks the distribution API, version 2",
            )
        return digest

    async def _ask_registry(self, asked: Reference, token: RegistryToken | None) -> Any:
        try:
            return await self._ask(
                "GET",
                f"/distribution/{asked}/json",
                headers=authorisation(token),
                timeout=self.resolve_seconds,
            )
        except EngineError as error:
            raise resolve_fault(asked, error.status, error.message, token=token) from error
        except _Hung:
            logger.debug("nothing is said of %s: it is the engine that hangs, or the registry", asked.text)
        await self._ask("GET", "/version", timeout=self.resolve_seconds)
        raise RegistryUnreachable(
            f"{asked.registry} did not say within {self.resolve_seconds:g} s what {asked.text} names",
            fix="check its address and the machine's way to it, and try again",
        )

    async def _fetch(
        self,
        pinned: Reference,
        on_progress: OnProgress,
        token: RegistryToken | None,
        limits: PullLimits | None,
    ) -> Mapping[str, Any]:
        """Pull what is not held, and look at it."""
        gauge = None
        if limits is not None and limits != PullLimits():
            gauge = await Gauge.begin(pinned, limits, await self._folder())
        with self.pulls.one(str(pinned)) as pull:
            puller = Puller(self.client, self.pulls, pull, pinned, token, gauge, self.room_seconds)
            try:
                fault = await puller.run(on_progress)
            except BaseException:
                # It may have come to its end just then; what is held to limits may not stay unlooked at.
                if gauge is not None:
                    with trio.move_on_after(TAKE_BACK_SECONDS, shield=True):
                        await self._take_back(pull)
                raise
            with trio.move_on_after(TAKE_BACK_SECONDS, shield=True):
                return await self._settle(pinned, pull, gauge, fault)
        raise _silent(f"the container engine did not say in time what became of the pull of {pinned.text}")

    async def _settle(
        self, pinned: Reference, pull: Pull, gauge: Gauge | None, fault: ImageFault | None
    ) -> Mapping[str, Any]:
        """Look at what a pull left: let it stay, or take it back and raise why."""
        found = await self._inspect(pinned) if fault is None else None
        if found is not None:
            fault = await self._judge(pinned, found, pull, gauge)
        elif fault is None:
            fault = PullFailed(
                f"the container engine said that the pull of {pinned.text} is done, and does not hold it",
                fix="try again; the engine's log (journalctl -u docker) may say why",
            )
        if fault is not None or found is None:
            assert fault is not None
            # An engine that went away did not finish, and is not to be waited for.
            if not isinstance(fault, EngineDown):
                await self._take_back(pull)
            raise fault
        self.pulls.succeed(pull)
        return found

    async def _judge(
        self, pinned: Reference, found: Mapping[str, Any], pull: Pull, gauge: Gauge | None
    ) -> ImageFault | None:
        try:
            self._check_machine(pinned, found)
        except ImageFault as fault:
            return fault
        if gauge is None:
            return None
        size = found.get("Size")
        over = gauge.judge_size(size, pull.tracker) if isinstance(size, int) else None
        return over or await gauge.read(pull.tracker.known_bytes)

    async def _take_back(self, pull: Pull) -> None:
        """Remove an image that came and should not stay, or came in the moment its pull was given up.

        The caller shields this from cancellation.
        """
        if not self.pulls.may_take_back(pull):
            return
        try:
            await self._delete(pull.reference)
            if not pull.tracker.has_ended:
                await trio.sleep(SETTLE_SECONDS)
                await self._delete(pull.reference)
        except DockerFault as error:
            logger.warning("what the pull of %s left could not be removed: %s", pull.reference, error)

    async def _delete(self, reference: str) -> None:
        await self.client.call("DELETE", f"/images/{reference}", ok=(404, 409), again=True)

    async def _tag(self, asked: Reference, digest: str) -> None:
        path, parameters = f"/images/{asked.at(digest)}/tag", {"repo": asked.name, "tag": asked.tag or ""}
        try:
            await self._ask("POST", path, params=parameters, again=True)
        except EngineError as error:
            raise PullFailed(
                f"{asked.text} was pulled and could not be given its tag: {error.message}", fix="try again"
            ) from error

    async def _folder(self) -> Path | None:
        try:
            info = await self._ask("GET", "/info")
        except EngineError as error:
            raise _silent(f"the container engine does not tell about itself: {error.message}") from error
        return image_folder(self.client.endpoint, info) if isinstance(info, dict) else None

    async def _inspect(self, asked: Reference) -> Mapping[str, Any] | None:
        """What the engine holds under a reference; a digest only under its own repository."""
        try:
            found = await self._ask("GET", f"/images/{asked}/json", ok=(404,))
        except EngineError as error:
            raise _silent(
                f"the container engine cannot say whether it holds {asked.text}: {error.message}"
            ) from error
        if not isinstance(found, dict):
            return None
        is_other = asked.digest is not None and asked.digest not in _digests(asked, found)
        return None if is_other else found

    def _image(self, asked: Reference, found: Mapping[str, Any]) -> Image:
        self._check_machine(asked, found)
        digest = asked.digest or next(iter(_digests(asked, found)), None)
        if digest is None:
            return Image(asked.text, str(found.get("Id", "")), None)
        return Image(asked.text, str(asked.pinned(digest)), digest)

    def _check_machine(self, asked: Reference, found: Mapping[str, Any]) -> None:
        engine = self.client.engine
        os, architecture = str(found.get("Os", "")), str(found.get("Architecture", ""))
        runs = _RUNS_ON.get(engine.architecture, frozenset({engine.architecture}))
        if os != engine.os or architecture not in runs:
            raise unusable(
                asked,
                f"it is made for {os or 'an unknown system'} on {architecture or 'an unknown architecture'}, "
                f"and the container engine runs {engine.os} on {engine.architecture}",
            )

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = CALL_SECONDS,
        ok: tuple[int, ...] = (),
        again: bool | None = None,
    ) -> Any:
        """`DockerClient.call`, and an engine that does not answer as the port has it; errors are its own."""
        try:
            return await self.client.call(
                method, path, params=params, headers=headers, timeout=timeout, ok=ok, again=again
            )
        except EngineHung as error:
            raise _Hung(error.reason, fix=error.fix) from error
        except EngineGone as error:
            raise EngineDown(error.reason, fix=error.fix) from error
        except BadAnswer as error:
            raise _silent(str(error)) from error


class _Hung(EngineDown):
    """Raised when the engine took a question and does not answer."""


def _silent(reason: str) -> EngineDown:
    return EngineDown(reason, fix="look at the container engine's log (journalctl -u docker)")


def _digests(asked: Reference, found: Mapping[str, Any]) -> list[str]:
    """The digests of an image in the repository that is asked for, however either is spelled."""
    listed = found.get("RepoDigests")
    digests = []
    for one in listed if isinstance(listed, list) else ():
        try:
            held = parse(str(one))
        except InvalidReference:
            # `<none>@sha256:…` is how an engine lists what it holds under no name.
            continue
        if held.digest is not None and held.is_same_repository(asked):
            digests.append(held.digest)
    return digests
