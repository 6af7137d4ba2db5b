"""What the engine says when a registry fails it, as what images may raise.

The engine hands on what the registry said as text, and not always under the status that fits: one that wants
a password is a 500, one that hides what it does not show is a 404 or a 403. Seen on Docker 20.10.
"""

import re
from typing import Final

from adapters.images.port import (
    ImageDenied,
    ImageFault,
    ImageNotFound,
    ImageUnusable,
    InvalidReference,
    NoRoom,
    PullFailed,
    RegistryToken,
    RegistryUnreachable,
)
from adapters.images.reference import Reference

MAX_SAID: Final = 400

_NO_ROOM: Final = ("no space left on device", "disk quota exceeded", "not enough space")
_OTHER_MACHINE: Final = (
    "no matching manifest for",
    "no match for platform",
    "cannot be used on this platform",
    "does not match the specified platform",
    "does not provide the specified platform",
)
_HIDDEN: Final = ("denied: requested access", "pull access denied", "insufficient_scope")
_REFUSED: Final = (
    "no basic auth credentials",
    "unauthorized",
    "authentication required",
    "denied:",
    "forbidden",
)
_MISSING: Final = ("manifest unknown", "name unknown", "not found", "repository does not exist")
_TIRED: Final = ("toomanyrequests", "too many requests", "rate limit")
_PLAIN: Final = "server gave HTTP response to HTTPS client"
_UNTRUSTED: Final = ("x509:", "certificate")
_AWAY: Final = (
    "dial tcp",
    "connection refused",
    "no such host",
    "i/o timeout",
    "Client.Timeout",
    "deadline exceeded",
    "TLS handshake",
    "received unexpected HTTP status",
    "connection reset",
    ": EOF",
)

_QUERY: Final = re.compile(r"\?[^\s\"']*")


def resolve_fault(
    asked: Reference, status: int, message: str, *, token: RegistryToken | None = None
) -> ImageFault:
    """Why the registry could not be asked what a reference names."""
    fault = _registry_fault(asked, status, message, token)
    return fault or RegistryUnreachable(
        f"{asked.registry} gives no answer that can be used for {asked.text}: {_said(message, token)}",
        fix="check that it is a registry (the distribution API, version 2) and that the image is whole there",
    )


def pull_fault(
    asked: Reference, status: int | None, message: str, *, token: RegistryToken | None = None
) -> ImageFault:
    """Why a pull failed. `status` is None for what a pull said that had begun."""
    said = _said(message, token)
    if any(text in message for text in _NO_ROOM):
        return NoRoom(
            f"the container engine's disk is full: {said}",
            fix="free some room there (docker system df tells what uses it)",
        )
    if any(text in message for text in _OTHER_MACHINE):
        return unusable(asked, said)
    if status is None and "blob" in message:
        # The registry serves the image and lacks a part of it: that is no missing image.
        return _broken(asked, said)
    fault = _registry_fault(asked, status, message, token)
    if fault is None or (
        status is None and isinstance(fault, RegistryUnreachable) and not _is_tired(message)
    ):
        return _broken(asked, said)
    return fault


def unusable(asked: Reference, why: str) -> ImageUnusable:
    """An image for another kind of machine."""
    return ImageUnusable(
        f"{asked.text} does not run on this machine: {why}",
        fix="name an image that is made for this machine's architecture, or an index with one for it",
    )


def _registry_fault(
    asked: Reference, status: int | None, message: str, token: RegistryToken | None
) -> ImageFault | None:
    said = _said(message, token)
    if message.startswith("invalid reference format"):
        return InvalidReference(
            f"the container engine takes {asked.text} for no reference: {said}",
            fix="name it as [registry[:port]/]name[:tag], in lower case",
        )
    if status == 429 or _is_tired(message):
        return RegistryUnreachable(
            f"{asked.registry} has had enough of questions from here: {said}",
            fix="try again later, or name the image at another registry that mirrors it",
        )
    if any(text in message for text in _HIDDEN):
        # Who shows no credential is not told whether there is such an image.
        return _not_found(asked, said) if token is None and status is not None else _denied(asked, said)
    if status in (401, 403) or any(text in message for text in _REFUSED):
        return _denied(asked, said)
    if any(text in message for text in _AWAY) or any(text in message for text in (_PLAIN, *_UNTRUSTED)):
        return _unreachable(asked, said)
    if status == 404 or any(text in message for text in _MISSING):
        return _not_found(asked, said)
    return None


def _is_tired(message: str) -> bool:
    return any(text in message for text in _TIRED)


def _not_found(asked: Reference, said: str) -> ImageNotFound:
    return ImageNotFound(
        f"{asked.registry} serves no {asked.text}, or shows it only to whoever has its credential: {said}",
        fix="check the name and the tag; a private image needs a credential, or is pulled on the peer's "
        "machine (docker login, docker pull) and run with BEST_PEER_PULL=missing",
    )


def _denied(asked: Reference, said: str) -> ImageDenied:
    return ImageDenied(
        f"{asked.registry} refuses {asked.text}: {said}",
        fix="check the name; use a credential that opens this repository, or pull the image on the peer's "
        "machine (docker login, docker pull) and set BEST_PEER_PULL=missing",
    )


def _unreachable(asked: Reference, said: str) -> RegistryUnreachable:
    if _PLAIN in said:
        fix = f"add {asked.registry} to insecure-registries in the engine's daemon.json if that is meant"
    elif any(text in said for text in _UNTRUSTED):
        fix = f"put its authority into /etc/docker/certs.d/{asked.registry}/ca.crt on the engine's machine"
    else:
        fix = "check its address and the machine's way to it, and try again"
    return RegistryUnreachable(f"{asked.registry} does not answer for {asked.text}: {said}", fix=fix)


def _broken(asked: Reference, said: str) -> PullFailed:
    return PullFailed(
        f"the pull of {asked.text} broke off: {said}", fix="try again; if it stays so, push the image anew"
    )


def _said(message: str, token: RegistryToken | None) -> str:
    """The engine's words as they may be shown: short, without a signed address's query and the token."""
    if token is not None and token.token:
        message = message.replace(token.token, "…")
    said = " ".join(_QUERY.sub("?…", message).split())
    return said if len(said) <= MAX_SAID else said[:MAX_SAID] + "…"
