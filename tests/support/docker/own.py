"""Engines and registries of one test's own: to be killed, filled up, started with other flags."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import trio

from tests.support.docker.engine import Engine
from tests.support.docker.kernel import cgroup_processes, do, make_disk, remove_cgroup, unmount_below
from tests.support.docker.registry import STORE_FOLDER, start_registry, wait_for_registry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from tests.support.docker.bed import DockerBed

_END_SECONDS = 30.0

_BRIDGE = re.compile(rb'"BridgeName":"(br-[0-9a-f]{12})"')
HOOK = "nvidia-container-runtime-hook"
_HOOK_TEXT = """#!{python}
import json, os, sys
folder = {folder!r}
if os.path.exists(folder + "/fails"):
    sys.exit("nvidia-container-cli: " + open(folder + "/fails").read())
bundle = json.load(sys.stdin).get("bundle") or os.getcwd()
environment = dict(pair.split("=", 1) for pair in json.load(open(bundle + "/config.json"))["process"]["env"])
with open(folder + "/seen.jsonl", "a") as seen:
    seen.write(json.dumps({{name: value for name, value in environment.items() if "NVIDIA" in name}}) + "\\n")
"""


@attrs.frozen
class NvidiaStandIn:
    """What an engine takes for NVIDIA's toolkit: it notes what each container is given, and gives nothing."""

    folder: Path

    @classmethod
    def install(cls, folder: Path) -> NvidiaStandIn:
        """Put it where an engine finds it that has `folder` in its PATH."""
        folder.mkdir(parents=True)
        hook = folder / HOOK
        hook.write_text(_HOOK_TEXT.format(python=sys.executable, folder=str(folder)))
        hook.chmod(0o755)
        return cls(folder)

    def seen(self) -> list[dict[str, str]]:
        """The variables of NVIDIA's that each container began with, in order."""
        file = self.folder / "seen.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def fail(self, message: str) -> None:
        """Let containers with devices fail to start from now on, as the toolkit lets them."""
        (self.folder / "fails").write_text(message)


@attrs.define
class OwnEngine(Engine):
    """An engine of one test's own: `start`, `stop` and `kill` as often as the test likes."""

    bridge: str = ""
    nvidia: NvidiaStandIn | None = None

    def pull(self, reference: str) -> None:
        """Let it hold an image.

        Raises:
            AssertionError: it could not be pulled.
        """
        with self.client() as client:
            answer = client.post("/images/create", params={"fromImage": reference})
        assert "Status: " in answer.text, answer.text

    def containers(self) -> list[dict[str, Any]]:
        """Every container it has, ended ones too."""
        with self.client() as client:
            found = client.get("/containers/json", params={"all": "1"}).raise_for_status().json()
            assert isinstance(found, list)
            return found

    def end(self) -> None:
        """End it and everything that it ran, however it ended before, and remove all of it."""
        self.stop()
        deadline = time.monotonic() + _END_SECONDS
        while pids := self._processes() | cgroup_processes(self.cgroup):
            assert time.monotonic() < deadline, f"these do not end: {pids}"
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        bridges = (self.bridge, *self.bridges_of_networks())
        unmount_below(self.folder, self.data)
        while not remove_cgroup(self.cgroup):
            assert time.monotonic() < deadline, f"the control group {self.cgroup} cannot be removed"
            time.sleep(0.02)
        for bridge in bridges:
            subprocess.run(["ip", "link", "delete", bridge], check=False, capture_output=True)
        for folder in (self.folder, self.data):
            shutil.rmtree(folder, ignore_errors=True)

    def bridges_of_networks(self) -> list[str]:
        """Of the networks that it made. A dockerd that ends leaves them."""
        written = self.data / "network/files/local-kv.db"
        names = set(_BRIDGE.findall(written.read_bytes())) if written.exists() else set()
        return sorted(name.decode() for name in names)

    def _processes(self) -> set[int]:
        """Its containerd and what that started beside the containers: those that name its folder."""
        mark = f"{self.folder}/exec/".encode()
        found = set()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (process / "cmdline").read_bytes():
                    found.add(int(process.name))
        return found


@contextmanager
def own_engine(
    bed: DockerBed,
    *flags: str,
    disk_bytes: int | None = None,
    nvidia: bool = False,
    environment: dict[str, str] | None = None,
) -> Iterator[OwnEngine]:
    """Another engine beside the bed's, started: a data root, a socket and a bridge of its own.

    It reaches the bed's registries and publishes ports on loopback; its containers reach nothing outside of
    the namespaces. About a second to start and one to end. Ends wholly whatever was done to it.

    Args:
        bed: the bed.
        flags: of dockerd, as `--live-restore`, `--userns-remap=default`.
        disk_bytes: its data lie on a disk of that size, to be filled.
        nvidia: what it takes for NVIDIA's toolkit is found in its PATH.
        environment: variables for dockerd.
    """
    name = uuid.uuid4().hex[:8]
    engine = _prepared(bed, name, flags, disk_bytes, nvidia=nvidia, environment=environment or {})
    try:
        engine.start()
        yield engine
    finally:
        engine.end()


@asynccontextmanager
async def open_own_engine(
    bed: DockerBed, *flags: str, disk_bytes: int | None = None, nvidia: bool = False
) -> AsyncIterator[OwnEngine]:
    """`own_engine` for tests in Trio."""
    manager = own_engine(bed, *flags, disk_bytes=disk_bytes, nvidia=nvidia)
    engine = await trio.to_thread.run_sync(manager.__enter__)
    try:
        yield engine
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 2 * _END_SECONDS):
            await trio.to_thread.run_sync(manager.__exit__, None, None, None)


def _prepared(
    bed: DockerBed,
    name: str,
    flags: Sequence[str],
    disk_bytes: int | None,
    *,
    nvidia: bool,
    environment: dict[str, str],
) -> OwnEngine:
    folder, data = bed.folder / "own" / name, bed.disk / f"own-{name}"
    folder.mkdir(parents=True)
    if disk_bytes is not None:
        make_disk(data, disk_bytes)
    stand_in = NvidiaStandIn.install(folder / "nvidia") if nvidia else None
    if stand_in:
        environment = {**environment, "PATH": f"{stand_in.folder}:{os.environ['PATH']}"}
    # A bridge and addresses of its own, and no rules: what dockerd writes to iptables is one engine's alone.
    bridge, subnet = f"bp-{name}", f"10.{int(name[:2], 16)}.{int(name[2:4], 16)}.1/24"
    do("ip", "link", "add", "name", bridge, "type", "bridge")
    do("ip", "address", "add", subnet, "dev", bridge)
    do("ip", "link", "set", bridge, "up")
    return OwnEngine(
        folder=folder,
        data=data,
        cgroup=f"{bed.cgroup}/own-{name}",
        flags=("--bridge", bridge, "--iptables=false", *flags),
        environment=environment,
        bridge=bridge,
        nvidia=stand_in,
    )


@attrs.define
class OwnRegistry:
    """A registry of one test's own, which serves what the bed's do, and can be killed and started again."""

    address: str
    _folder: Path
    _store: Path
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, at the same address, and wait until it serves."""
        self._process = start_registry(self._folder, self.address, store=self._store)
        wait_for_registry(self.address)

    def kill(self) -> None:
        """End it with kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def own_registry(bed: DockerBed) -> Iterator[OwnRegistry]:
    """Another registry beside the bed's, over the same images, started. `proxy.py` has finer ways to fail."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    folder = bed.folder / "own" / uuid.uuid4().hex[:8]
    registry = OwnRegistry(address, folder, bed.disk / STORE_FOLDER)
    try:
        registry.start()
        yield registry
    finally:
        registry.kill()
        shutil.rmtree(folder, ignore_errors=True)
