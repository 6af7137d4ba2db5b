"""The bed that tests with containers lie in: an engine and registries that this run alone uses.

`scripts/testbed COMMAND` makes it; a test gets it as the fixture `docker_bed`.
"""

from __future__ import annotations

import os
from pathlib import Path

import attrs
import cattrs.preconf.json

from tests.support.docker.images import Image

VARIABLE = "BEST_PEER_TEST_BED"
"""Names the folder of the bed to everything that runs in it."""

_json = cattrs.preconf.json.make_converter()


@attrs.frozen
class Registry:
    """A registry on loopback.

    Args:
        address: `127.0.0.1:PORT`, the first part of the references it serves.
        username: who may pull and push; None where everybody may.
        password: that user's.
        realm: the address of the server that gives out its tokens; None where it takes none.
        folder: where the key of those tokens is, for `tokens.mint`.
    """

    address: str
    username: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    realm: str | None = None
    folder: Path | None = None


@attrs.frozen
class DockerBed:
    """What a test needs to know of it.

    Args:
        folder: the bed's own, gone when the run ends.
        disk: a folder on the disk that the engine's data lie on; room of 16 GiB, which nothing outlives.
        socket: where the engine listens.
        api_version: what the engine speaks.
        cgroup: parent of the control groups of every container.
        registry: takes and serves all, asking nobody who they are.
        guarded: serves the same images to those who show a password.
        tokens: serves the same images to those who bring a token from its realm.
        images: what can be pushed with `push_as` at no cost, by name; see `ready.py`.
    """

    folder: Path
    disk: Path
    socket: Path
    api_version: str
    cgroup: str
    registry: Registry
    guarded: Registry
    tokens: Registry
    images: dict[str, Image] = attrs.field(repr=False)

    @property
    def docker_host(self) -> str:
        """What `DOCKER_HOST` says to reach the engine."""
        return f"unix://{self.socket}"

    @property
    def api(self) -> str:
        """The base of the engine's addresses, for a client whose transport goes to `socket`."""
        return f"http://engine/v{self.api_version}"

    def save(self) -> None:
        """Write the bed down for those who run in it."""
        _file(self.folder).write_text(_json.dumps(self))


class NoBed(Exception):
    """Raised when a test wants the bed and runs in none."""

    def __init__(self) -> None:
        super().__init__(
            "this test needs a Docker engine of its own: run it with `scripts/test PATH`,"
            " or leave it out with `scripts/test --without-docker`"
        )


def the_bed() -> DockerBed:
    """The bed that this process runs in.

    Raises:
        NoBed: it runs in none.
    """
    folder = os.environ.get(VARIABLE)
    if not folder or not _file(Path(folder)).exists():
        raise NoBed
    return _json.loads(_file(Path(folder)).read_text(), DockerBed)


def _file(folder: Path) -> Path:
    return folder / "bed.json"
