"""The images a container engine holds, and how more are fetched from their registries (F22).

A reference is what a person writes: `name`, `name:tag`, `name@sha256:…`, with or without a registry before
it. What is run is pinned: a tag may move between the pull and the start.
"""

from collections.abc import Callable
from typing import Literal, Protocol

import attrs


class ImageFault(Exception):
    """Base of what images may raise. `reason` says what happened, `fix` what to do; no secret is in them."""

    code = "IMAGE_FAILED"

    def __init__(self, reason: str, *, fix: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix


class InvalidReference(ImageFault):
    """Raised when a text is no reference to an image."""

    code = "INVALID_IMAGE"


class ImageNotFound(ImageFault):
    """Raised when the registry serves no such image, or shows none to whoever asks without its credential."""

    code = "IMAGE_NOT_FOUND"


class ImageDenied(ImageFault):
    """Raised when the registry refuses: a credential is missing, wrong, or opens another repository."""

    code = "IMAGE_DENIED"


class ImageUnusable(ImageFault):
    """Raised when the image is of no use on this machine: another architecture or operating system."""

    code = "IMAGE_UNUSABLE"


class RegistryUnreachable(ImageFault):
    """Raised when the registry does not answer, refuses the connection or has had enough of questions."""

    code = "REGISTRY_UNREACHABLE"


class PullFailed(ImageFault):
    """Raised when a pull that began did not come to its end: broken, corrupt, stalled."""

    code = "PULL_FAILED"


class TooLarge(ImageFault):
    """Raised when a pull passed the bytes it was allowed; nothing of it stays."""

    code = "IMAGE_TOO_LARGE"

    def __init__(self, reason: str, *, fix: str, limit_bytes: int) -> None:
        super().__init__(reason, fix=fix)
        self.limit_bytes = limit_bytes


class NoRoom(ImageFault):
    """Raised when the engine's disk is full, or would hold less free room than it has to keep."""

    code = "NO_IMAGE_ROOM"


class RoomUnknown(ImageFault):
    """Raised when a floor of free room was asked for and the engine's disk cannot be read from here."""

    code = "ROOM_UNKNOWN"


class EngineDown(ImageFault):
    """Raised when the container engine itself does not answer."""

    code = "RUNTIME_UNAVAILABLE"


@attrs.frozen
class Pinned:
    """An image named for good: `repository` as it was written, without tag, and its registry's digest."""

    repository: str
    digest: str

    def __str__(self) -> str:
        return f"{self.repository}@{self.digest}"


@attrs.frozen
class Image:
    """An image the engine holds.

    Args:
        reference: as it was asked for.
        run: what to start it by: pinned, or the engine's own id where no registry gave it a digest.
        digest: the registry's digest of it; None for one that was built or loaded by hand.
    """

    reference: str
    run: str
    digest: str | None


@attrs.frozen
class RegistryToken:
    """A bearer token for one registry and no other. `registry` is its host, with the port if it has one."""

    registry: str
    token: str = attrs.field(repr=False)


@attrs.frozen
class PullLimits:
    """What a pull may do to the engine's disk, in bytes; None is no limit.

    Args:
        most_bytes: what it may put there. An image that was held before is not counted.
        least_free_bytes: what it must leave free there.
    """

    most_bytes: int | None = None
    least_free_bytes: int | None = None


@attrs.frozen
class PullProgress:
    """How far a pull is.

    `percent` is None while nothing is fetched yet, or something whose size nobody said, and 99 at most until
    the end. A part that waits for its turn is taken to be as large as the others are on average, so it falls
    back when one turns out to be larger. `bytes_total` is None until every part's size is known.
    """

    percent: int | None
    bytes_done: int
    bytes_total: int | None


OnProgress = Callable[[PullProgress], None]
"""Called as often as the engine says anything. Never blocks."""


class Images(Protocol):
    """One engine's images. Every method may be cancelled at any await, and leaves nothing half made.

    Every method raises `InvalidReference` for a text that is no reference, and all but `check` raise
    `EngineDown` when the engine does not answer.
    """

    def check(self, reference: str) -> None:
        """Whether a text is a reference at all: asks nobody, never waits. For a command's admission."""
        ...

    async def resolve(self, reference: str, *, token: RegistryToken | None = None) -> Pinned:
        """Ask the image's registry what a reference names now. Nothing is pulled, nothing held is asked.

        Raises:
            ImageNotFound, ImageDenied, RegistryUnreachable: whatever the engine holds.
            ImageDenied: the token is for another registry; nothing was asked.
        """
        ...

    async def held(self, reference: str) -> Image | None:
        """The image the engine holds under a reference, None when it holds none; no registry is asked.

        One pinned by digest is held when the engine has that digest under that repository, however spelled.

        Raises:
            ImageUnusable: it is for another kind of machine.
        """
        ...

    async def pull(
        self,
        reference: str,
        on_progress: OnProgress,
        *,
        token: RegistryToken | None = None,
        limits: PullLimits | None = None,
    ) -> Image:
        """Fetch an image from its registry; what the engine holds of it already is not fetched again.

        Raises:
            ImageNotFound, ImageDenied, ImageUnusable, RegistryUnreachable, PullFailed: nothing is left of it.
            TooLarge, NoRoom, RoomUnknown: a limit was passed, or cannot be kept; nothing is left of it.
        """
        ...

    async def remove(self, pinned: Pinned) -> None:
        """Remove one pinned reference and no tag. Removing what is not held is no error.

        Raises:
            ImageFault: a container uses it.
        """
        ...


Pull = Literal["always", "missing"]
"""`BEST_PEER_PULL`: whether an image named by tag is pulled anew for each workload, or only when not held."""
