"""The discovery manifest of the root door, and the sign-in words it carries (F1; conformance D, A, G01).

The manifest is public and static: it is made once, from the endpoint alone, and holds nothing of the machine
(D30). Its texts name no address, header, operation or step (D17): those stand in the members made for them.
"""

import re
from typing import Any, Final

import attrs
import orjson

from peer.door.catalogue import DOCUMENTS, SCOPES

BEST_VERSION: Final = "0.9.18"
SERVICE: Final = "io.behavioralstate.best-peer"
KEY_HEADER: Final = "X-Api-Key"
DEVICE_AUTHORIZATION_PATH: Final = "/oauth/device"
TOKEN_PATH: Final = "/oauth/token"  # noqa: S105 - a path, not a token

_SPEC: Final = "https://behavioralstate.io"
_SEMVER: Final = re.compile(r"(\d+\.\d+\.\d+)")


@attrs.frozen
class SignInGuidance:
    """The three fixed texts of the spec, byte for byte: nothing else here speaks of signing in (G01-G05).

    `manifest` is the authentication block's note, `device` the note of the device authorization answer, and
    `token` the beginning of the token answer's note.
    """

    manifest: str
    device: str
    token: str

    @classmethod
    def load(cls, version: str = BEST_VERSION) -> "SignInGuidance":
        """The texts of one spec version; raises KeyError for a version whose texts are not held."""
        texts = orjson.loads((DOCUMENTS / "sign-in-guidance.json").read_bytes())
        return cls(**texts[version])


def root_manifest(endpoint: str, version: str) -> bytes:
    """The body of GET /.well-known/best for the door at `endpoint`, served by the peer's `version`.

    The schema wants three numbers as a version, so what follows them in ours (a pre-release) is left off.
    Raises ValueError where there are no three numbers.
    """
    base = endpoint.rstrip("/")
    numbers = _SEMVER.match(version)
    if numbers is None:
        raise ValueError(f"expected a version that begins with three numbers, such as 1.2.3; got {version!r}")
    best = {
        "version": BEST_VERSION,
        "authentication": authentication(base),
        "services": {
            SERVICE: {
                "version": numbers[1],
                "description": (
                    "A machine and its accelerators: what hardware is there and how much of it is free, "
                    "the models served on it, and their answers."
                ),
                "http": {"endpoint": base},
            }
        },
        "capabilities": _capabilities(),
    }
    return orjson.dumps({"best": best})


def authentication(endpoint: str) -> dict[str, Any]:
    """The authentication block of the door at `endpoint`: a key in a header, had through the device flow."""
    base = endpoint.rstrip("/")
    return {
        "type": "apiKey",
        "scheme": KEY_HEADER,
        "in": "header",
        "scopes": list(SCOPES),
        "deviceAuthorizationUrl": f"{base}{DEVICE_AUTHORIZATION_PATH}",
        "tokenUrl": f"{base}{TOKEN_PATH}",
        "note": SignInGuidance.load().manifest,
    }


def _capabilities() -> list[dict[str, Any]]:
    commands = _capability(
        "commands",
        "The commands this machine takes, each with a document that says all about it.",
        ("GET", "/commands", "The commands the caller may send"),
        ("POST", "/commands", "Take one command, kept before it is answered"),
        ("GET", "/commands/{schema}/{version}", "The document of one command"),
    )
    events = _capability(
        "events",
        "What happened on this machine, as pages of history and as a live stream.",
        ("GET", "/events", "Facts told so far, filtered and in pages"),
        ("GET", "/events/stream", "Facts as they are told, and those missed since a given one"),
        ("GET", "/events/{schema}/{version}", "The document of one kind of event"),
    )
    queries = _capability(
        "queries",
        "What this machine is and what it is doing, answered at once.",
        ("GET", "/queries", "The queries that can be asked"),
        ("GET", "/queries/{schema}", "The answer of one query"),
        ("GET", "/queries/{schema}/{version}", "The document of one query"),
    )
    workflows = _capability(
        "workflows",
        "Recipes that put the operations of this service in an order that works.",
        ("GET", "/workflows", "The recipes there are"),
        ("GET", "/workflows/{id}", "One recipe"),
    )
    return [commands, {**events, "push": {"sse": True}}, queries, workflows]


def _capability(name: str, description: str, *endpoints: tuple[str, str, str]) -> dict[str, Any]:
    listed = [{"method": method, "path": path, "description": what} for method, path, what in endpoints]
    return {
        "name": f"io.best.agents.{name}",
        "version": BEST_VERSION,
        "service": SERVICE,
        "description": description,
        "spec": f"{_SPEC}/specs/agents/{name}",
        "schema": f"{_SPEC}/v1/schemas/agents/{name}.json",
        "status": "active",
        "endpoints": listed,
    }
