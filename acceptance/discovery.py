"""The manifest: where the service is, how a key is had, and which of the protocol's capabilities it has."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from acceptance.problems import Faulty
from acceptance.wire import Wire

WELL_KNOWN = "/.well-known/best"
COMMANDS = "io.best.agents.commands"
EVENTS = "io.best.agents.events"
QUERIES = "io.best.agents.queries"
WORKFLOWS = "io.best.agents.workflows"
NEEDED = (COMMANDS, EVENTS, QUERIES, WORKFLOWS)


@dataclass(frozen=True)
class Surface:
    """What a manifest says: where the operations are, and the authentication block that governs them."""

    manifest: str
    version: str
    description: str
    endpoint: str
    authentication: dict[str, Any]

    def url(self, *path: str) -> str:
        """The URL of a path of the protocol, its parts already fit for a URL."""
        return "/".join((self.endpoint, *path))

    def is_ours(self, url: str) -> bool:
        """Whether a URL lies under the endpoint."""
        return url.startswith(f"{self.endpoint}/")


def read_manifest(wire: Wire, address: str) -> Surface:
    """Read the manifest at an address: its own, or the bare service's.

    Raises:
        Faulty: it is no manifest, or lacks a capability that a recipe needs.
        Unreachable: nobody answers.
    """
    url = manifest_url(address)
    best = wire.document(url).get("best")
    if not isinstance(best, dict):
        raise Faulty(f"{url} is no manifest: it has no member best")
    capabilities = {entry["name"]: entry for entry in best["capabilities"]}
    missing = [
        name
        for name in NEEDED
        if name not in capabilities or capabilities[name].get("status", "active") != "active"
    ]
    if missing:
        raise Faulty(
            f"the manifest does not offer {', '.join(missing)}, without which no recipe can be followed"
        )
    if capabilities[EVENTS].get("push", {}).get("sse") is not True:
        raise Faulty("the manifest declares no event stream (push.sse), so that facts cannot be followed")
    services = {_service_of(capabilities[name], best["services"]) for name in NEEDED}
    if len(services) != 1:
        raise Faulty(f"the capabilities belong to several services: {', '.join(sorted(services))}")
    service = best["services"][services.pop()]
    return Surface(
        manifest=url,
        version=str(best["version"]),
        description=str(service["description"]),
        endpoint=str(service["http"]["endpoint"]).rstrip("/"),
        authentication=service.get("authentication") or best.get("authentication") or {"type": "none"},
    )


def manifest_url(address: str) -> str:
    """The manifest's URL; a bare address has it at the well-known path."""
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise Faulty(f"{address} is no address of a manifest: expected https://host/{WELL_KNOWN.lstrip('/')}")
    return address.rstrip("/") + WELL_KNOWN if parts.path in {"", "/"} else address


def _service_of(capability: dict[str, Any], services: dict[str, Any]) -> str:
    named = capability.get("service")
    if named is None:
        fitting = [key for key in services if capability["name"].startswith(key)]
        named = fitting[0] if len(fitting) == 1 else None
    if named not in services:
        raise Faulty(f"the capability {capability['name']} belongs to no service of the manifest")
    return str(named)
