"""The machine as its own tools see it: the container engine, the cards."""

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from acceptance.problems import Faulty, Unreachable

MIB = 1024 * 1024
SOCKET = "/var/run/docker.sock"
TOOL_SECONDS = 30.0
FIELDS = ("index", "name", "uuid", "memory.total", "memory.used", "driver_version", "compute_cap")
TOOLKIT = ("nvidia-container-runtime-hook", "nvidia-container-runtime", "nvidia-ctk", "nvidia-container-cli")


@dataclass(frozen=True)
class Card:
    """A card as the driver's tool lists it. Sizes are bytes."""

    index: int
    name: str
    uuid: str
    memory_total_bytes: int
    memory_used_bytes: int
    driver: str
    compute_capability: str


class Docker:
    """The container engine, asked beside the peer's back. Blocks.

    Args:
        address: what `DOCKER_HOST` says; None for the socket of this machine.

    Raises:
        Unreachable: it is not on this machine.
    """

    def __init__(self, address: str | None) -> None:
        parts = urlsplit(address or f"unix://{SOCKET}")
        if parts.scheme != "unix":
            raise Unreachable(f"DOCKER_HOST is {address}: run this on the machine that Docker runs on")
        transport = httpx.HTTPTransport(uds=parts.path)
        self._client = httpx.Client(
            transport=transport, base_url="http://docker", timeout=60, trust_env=False
        )

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def ask(self, method: str, path: str, **parameters: str) -> Any:
        """One question.

        Raises:
            Unreachable: the engine does not answer, or refuses.
        """
        try:
            answer = self._client.request(method, path, params=parameters)
        except httpx.HTTPError as error:
            raise Unreachable(
                f"Docker does not answer: {error}; start it, or let this user use it (docker ps)"
            ) from error
        if answer.status_code >= 400:
            raise Unreachable(f"Docker refuses {path}: {answer.text[:300].strip()}")
        return answer.json() if answer.content else None

    def containers_of(self, instance: str) -> list[dict[str, Any]]:
        """Every container of a peer, by the label it bears."""
        mark = f'{{"label":["io.behavioralstate.best-peer.instance={instance}"]}}'
        found = self.ask("GET", "/containers/json", all="1", filters=mark)
        return found if isinstance(found, list) else []

    def remove_containers_of(self, instance: str) -> int:
        """Remove what a peer left; how many."""
        found = self.containers_of(instance)
        for container in found:
            self.ask("DELETE", f"/containers/{container['Id']}", force="1", v="1")
        return len(found)


def about_host(docker: Docker) -> dict[str, Any]:
    """What matters of this machine to somebody who reads the report elsewhere."""
    info = docker.ask("GET", "/info")
    version = docker.ask("GET", "/version")
    return {
        "system": platform.platform(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
        "docker": {
            "version": version.get("Version"),
            "api": version.get("ApiVersion"),
            "cgroup": [info.get("CgroupDriver"), info.get("CgroupVersion")],
            "storage": info.get("Driver"),
            "security": info.get("SecurityOptions"),
            "runtimes": sorted(info.get("Runtimes") or {}),
        },
        "toolkit": {name: bool(shutil.which(name)) for name in TOOLKIT},
    }


def cards() -> list[Card]:
    """The cards that `nvidia-smi` lists; empty where there is no such tool.

    Raises:
        Faulty: it is there and fails.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    asked = [program, f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Faulty(f"nvidia-smi cannot be run: {error}") from error
    if done.returncode != 0:
        raise Faulty(f"nvidia-smi ends with {done.returncode}: {(done.stdout or done.stderr).strip()[:300]}")
    return [_card(line) for line in done.stdout.splitlines() if line.strip()]


def _card(line: str) -> Card:
    values = [value.strip() for value in line.split(",")]
    if len(values) != len(FIELDS):
        raise Faulty(f"nvidia-smi says what is no card: {line[:200]}")
    index, name, uuid, total, in_use, driver, capability = values
    try:
        return Card(int(index), name, uuid, int(total) * MIB, int(in_use) * MIB, driver, capability)
    except ValueError:
        raise Faulty(f"nvidia-smi says what is no figure: {line[:200]}") from None
