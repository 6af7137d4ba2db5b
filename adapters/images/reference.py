"""References to images: read, completed as Docker completes them, compared."""

import re
from typing import Final

import attrs

from adapters.images.port import InvalidReference, Pinned

DEFAULT_REGISTRY: Final = "docker.io"
DEFAULT_TAG: Final = "latest"
OFFICIAL: Final = "library"
MAX_TEXT: Final = 512
MAX_NAME: Final = 255
"""Characters of registry and path together, as registries bound them."""
MAX_SHOWN: Final = 100

_HOST_PART: Final = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_REGISTRY: Final = re.compile(rf"(?:{_HOST_PART}(?:\.{_HOST_PART})*|\[[a-fA-F0-9:]+\])(?::[0-9]{{1,5}})?")
_PATH_PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH: Final = re.compile(rf"{_PATH_PART}(?:/{_PATH_PART})*")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST: Final = re.compile(r"sha256:[a-f0-9]{64}")
_ID: Final = re.compile(r"[a-f0-9]{64}")
_FORM: Final = "[registry[:port]/]name[:tag], or name@sha256: and 64 hex digits"


@attrs.frozen
class Reference:
    """What a text names.

    Args:
        text: as it was written.
        repository: its part without tag and digest, as written.
        registry: who serves it, `docker.io` where none is named; the port stays.
        path: the repository's path there, `library/` completed.
        tag: None where there is a digest, which is what counts then.
        digest: `sha256:` and 64 hex digits, None for a reference by tag.
    """

    text: str
    repository: str
    registry: str
    path: str
    tag: str | None
    digest: str | None

    @property
    def name(self) -> str:
        """The repository, spelled in full."""
        return f"{self.registry}/{self.path}"

    def __str__(self) -> str:
        return f"{self.name}@{self.digest}" if self.digest is not None else f"{self.name}:{self.tag}"

    def at(self, digest: str) -> str:
        """A digest in this repository, spelled in full."""
        return f"{self.name}@{digest}"

    def pinned(self, digest: str) -> Pinned:
        """This repository, as it was written, at a digest."""
        return Pinned(self.repository, digest)

    def is_same_repository(self, other: "Reference") -> bool:
        """Whether both name one repository, however spelled. Hosts are the same in any case."""
        return self.path == other.path and self.registry.lower() == other.registry.lower()

    def is_served_by(self, registry: str) -> bool:
        """Whether its registry is this one, named by its host and the port if it has one."""
        return _registry(registry).lower() == self.registry.lower()


def parse(text: str) -> Reference:
    """Read a reference.

    Raises:
        InvalidReference: it is none, with what to write instead where that can be told.
    """
    if not text or len(text) > MAX_TEXT:
        raise InvalidReference(
            "the image has no name" if not text else f"the image's name is longer than {MAX_TEXT} characters",
            fix=f"name it as {_FORM}",
        )
    rest, at, digest = text.partition("@")
    if at and not is_digest(digest):
        raise InvalidReference(
            f"{_shown(digest)} is no digest", fix="write sha256: and 64 lower-case hex digits after the @"
        )
    repository, tag = _split_tag(rest)
    if tag is not None and _TAG.fullmatch(tag) is None:
        raise InvalidReference(
            f"{_shown(tag)} is no tag",
            fix="a tag has up to 128 letters, digits, dots, hyphens and underscores; the first is a letter, "
            "a digit or an underscore",
        )
    registry, path = _split_registry(repository)
    _check(text, repository, registry, path)
    if registry == DEFAULT_REGISTRY and "/" not in path:
        path = f"{OFFICIAL}/{path}"
    if len(registry) + 1 + len(path) > MAX_NAME:
        raise InvalidReference(
            f"the image's name is longer than {MAX_NAME} characters", fix="registries take none so long"
        )
    if at:
        return Reference(text, repository, registry, path, None, digest)
    return Reference(text, repository, registry, path, tag or DEFAULT_TAG, None)


def is_digest(text: str) -> bool:
    """Whether a text is a digest that pins an image."""
    return _DIGEST.fullmatch(text) is not None


def _check(text: str, repository: str, registry: str, path: str) -> None:
    if _ID.fullmatch(repository):
        raise InvalidReference(
            f"{_shown(text)} is an image's id and no name", fix=f"name the image as {_FORM}"
        )
    if _REGISTRY.fullmatch(registry) is None:
        raise InvalidReference(f"{_shown(registry)} is no registry's host", fix=f"name the image as {_FORM}")
    if _PATH.fullmatch(path) is not None:
        return
    if _PATH.fullmatch(path.lower()) is not None:
        # Only what is allowed is said back: the lower-case form is one that can be used as it stands.
        suggestion = repository[: len(repository) - len(path)] + path.lower() + text[len(repository) :]
        raise InvalidReference(
            f"{_shown(text)} has capital letters in its name, and an image's name has none",
            fix=f"write {_shown(suggestion)}",
        )
    raise InvalidReference(f"{_shown(text)} is no reference to an image", fix=f"name it as {_FORM}")


def _split_tag(text: str) -> tuple[str, str | None]:
    """A colon after the last slash begins a tag; one before it, a port."""
    head, slash, last = text.rpartition("/")
    name, colon, tag = last.partition(":")
    return head + slash + name, tag if colon else None


def _split_registry(repository: str) -> tuple[str, str]:
    first, slash, rest = repository.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return _registry(first), rest
    return DEFAULT_REGISTRY, repository


def _registry(host: str) -> str:
    # Docker's own registry has a second name, from before there were others.
    return DEFAULT_REGISTRY if host.lower() in (DEFAULT_REGISTRY, f"index.{DEFAULT_REGISTRY}") else host


def _shown(text: str) -> str:
    """The text as an error may repeat it: short, and with nothing in it that a terminal would obey."""
    plain = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
    return plain if len(plain) <= MAX_SHOWN else plain[:MAX_SHOWN] + "…"
