"""Inside the bed's namespaces: makes the bed, runs a command in it, and ends when that ends.

Started by `outside.py` as the first process of its process namespace, so that its end is everything's end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx

from tests.support.docker.bed import VARIABLE, DockerBed, Registry
from tests.support.docker.engine import Engine, EngineDidNotStart
from tests.support.docker.kernel import do, make_disk
from tests.support.docker.layers import forget_unused_layers
from tests.support.docker.ready import READY
from tests.support.docker.registry import (
    HTPASSWD,
    PASSWORD,
    STORE_FOLDER,
    USERNAME,
    put_image,
    start_registry,
    wait_for_registry,
)
from tests.support.docker.tokens import registry_auth

DISK_BYTES = 16 << 30
ADDRESSES = "base=172.16.0.0/12,size=24"
"""Of networks: every peer has one, and what is killed leaves it."""
REGISTRY, GUARDED, TOKENS, REALM = (f"127.0.0.1:{port}" for port in (5000, 5001, 5002, 5003))


def main() -> int:
    """As the first process: reap what others leave behind, and end as the command does."""
    folder, command = Path(sys.argv[1]), sys.argv[2:]
    child = os.fork()
    if child == 0:
        os._exit(_run(folder, command))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    while True:
        pid, status = os.wait()
        if pid == child:
            return os.waitstatus_to_exitcode(status) & 0xFF


def _run(folder: Path, command: list[str]) -> int:
    began = time.monotonic()
    try:
        bed = make_bed(folder)
    except KeyboardInterrupt:
        return 130
    except (EngineDidNotStart, subprocess.CalledProcessError, OSError, httpx.HTTPError) as problem:
        print(f"error: the test bed could not be made: {problem}", file=sys.stderr)
        if isinstance(problem, subprocess.CalledProcessError) and problem.stderr:
            print(problem.stderr.decode(errors="replace"), file=sys.stderr)
        return 2
    print(f"a Docker engine and registries of our own, in {time.monotonic() - began:.1f} s", file=sys.stderr)
    # Ctrl-C goes to the command as well, which ends when it has told what it had to tell. Said before it is
    # there, and not as ignored, which it would be there too.
    signal.signal(signal.SIGINT, lambda *_: None)
    running = subprocess.Popen(command, env={**os.environ, VARIABLE: str(bed.folder)})
    signal.signal(signal.SIGTERM, lambda *_: running.terminate())
    return running.wait() & 0xFF


def make_bed(folder: Path) -> DockerBed:
    """Close the namespaces, start everything and put the images where they can be pulled."""
    _close_off(folder)
    # Users that an engine maps root to have to get through it.
    folder.chmod(0o711)
    disk = folder / "disk"
    make_disk(disk, DISK_BYTES)
    cgroup = f"/{folder.name}"
    engine = Engine(folder / "engine", disk / "docker", cgroup, ("--default-address-pool", ADDRESSES))
    store = disk / STORE_FOLDER
    (folder / "htpasswd").write_text(HTPASSWD)
    start_registry(folder / "registry", REGISTRY, store=store)
    basic = {"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}}
    start_registry(folder / "guarded", GUARDED, store=store, auth=basic)
    realm = f"http://{REALM}/token"
    start_registry(folder / "tokens", TOKENS, store=store, auth=registry_auth(folder / "tokens", realm))
    _start_token_server(folder / "tokens")
    engine.start()
    forget_unused_layers()
    images = {name: make() for name, make in READY.items()}
    wait_for_registry(REGISTRY)
    for name, image in images.items():
        put_image(REGISTRY, image, f"bed/{name}")
    for address in (GUARDED, TOKENS, REALM):
        wait_for_registry(address)
    bed = DockerBed(
        folder=folder,
        disk=disk,
        socket=engine.socket,
        api_version=engine.api_version(),
        cgroup=cgroup,
        registry=Registry(REGISTRY),
        guarded=Registry(GUARDED, USERNAME, PASSWORD),
        tokens=Registry(TOKENS, USERNAME, PASSWORD, realm, folder / "tokens"),
        images=images,
    )
    bed.save()
    return bed


def _close_off(folder: Path) -> None:
    do("ip", "link", "set", "lo", "up")
    # dockerd takes the host's containerd where /run shows one, and writes users and keys to /etc.
    do("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    changes = folder / "changes"
    changes.mkdir()
    do("mount", "-t", "tmpfs", "tmpfs", str(changes))
    for name in ("etc", "opt"):
        for part in ("upper", "work"):
            (changes / name / part).mkdir(parents=True)
        layers = f"lowerdir=/{name},upperdir={changes}/{name}/upper,workdir={changes}/{name}/work"
        do("mount", "-t", "overlay", "-o", layers, "overlay", f"/{name}")


def _start_token_server(folder: Path) -> None:
    argv = [sys.executable, "-m", "tests.support.docker.tokens", str(folder), REALM]
    with (folder / "server.log").open("ab") as log:
        subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


if __name__ == "__main__":
    sys.exit(main())
