"""A systemd of a test's own, in namespaces that end with it: real units, and nothing of this machine's."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from tests.support.programs import program

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS: Final = 120.0
"""A bound on a hang, no measure of speed."""
MANAGER: Final = "/lib/systemd/systemd"

# A control group of its own, below that of whoever asks: all that systemd makes of groups is in there.
_GROUP: Final = """
set -e
mount --make-rprivate /
mount -t cgroup2 cgroup2 "$1"
group=$1$(sed -n 's/^0:://p' /proc/self/cgroup)/$2
shift 2
"""
_ENTER: Final = f"""{_GROUP}
mkdir "$group"
echo $$ >"$group/cgroup.procs"
exec "$@"
"""
_REMOVE: Final = f"""{_GROUP}
find "$group" -depth -type d -exec rmdir {{}} +
"""
# Units come from one folder alone, so nothing of this machine's is started, mounted or cleaned.
_BOOT: Final = """
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run
while umount /sys/fs/cgroup/* 2>/dev/null; do :; done
umount -R /sys/fs/cgroup 2>/dev/null || :
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ip link set lo up
export container=test SYSTEMD_UNIT_PATH="$1"
exec "$2" --system --unit=boot.target --log-target=console --show-status=no
"""


@attrs.define
class Systemd:
    """A manager that runs."""

    pid: int
    log: Path

    def ctl(self, *arguments: str, ok: bool = True) -> str:
        """What systemctl says; with `ok` it has to end well."""
        ran = self.run("systemctl", *arguments)
        assert not ok or ran.returncode == 0, f"{ran.stderr}\n{self.log.read_text()}"
        return ran.stdout

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a program where the manager runs."""
        return subprocess.run(
            [program("nsenter", "util-linux"), "-t", str(self.pid), "-a", *argv],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def show(self, unit: str, *names: str) -> dict[str, str]:
        """Properties of a unit."""
        wanted = [part for name in names for part in ("-p", name)]
        lines = self.ctl("show", *wanted, unit).splitlines()
        return {name: value for name, _, value in (line.partition("=") for line in lines)}


@contextmanager
def open_systemd(units: Path, log: Path) -> Iterator[Systemd]:
    """Boot a systemd that knows the units of one folder.

    Args:
        units: the folder.
        log: where it writes.
    """
    (units / "boot.target").write_text("[Unit]\nDefaultDependencies=no\n")
    groups = units.with_name("groups")
    groups.mkdir()
    unshare = program("unshare", "util-linux")
    in_group = [str(groups), f"best-peer-systemd-{os.getpid()}-{secrets.token_hex(4)}"]
    with log.open("w") as file:
        outer = subprocess.Popen(
            [
                *(unshare, "--mount", "sh", "-c", _ENTER, "sh", *in_group),
                *(unshare, "--pid", "--fork", "--kill-child", "--cgroup", "--net", "--mount", "--mount-proc"),
                *("sh", "-c", _BOOT, "sh", str(units), MANAGER),
            ],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    try:
        yield _booted(outer, log)
    finally:
        # With it ends the first process of its namespace, and so all of them.
        outer.kill()
        outer.wait(SECONDS)
        _remove([unshare, "--mount", "sh", "-c", _REMOVE, "sh", *in_group])


def _remove(command: list[str]) -> None:
    """Remove the group, once the kernel has taken the last process out of it."""
    end = time.monotonic() + SECONDS
    while (ran := subprocess.run(command, capture_output=True, text=True, check=False)).returncode != 0:
        assert time.monotonic() < end, ran.stderr
        time.sleep(0.02)


def _booted(outer: subprocess.Popen[bytes], log: Path) -> Systemd:
    children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and outer.poll() is None:
        for pid in children.read_text().split():
            # Before it come programs that prepare its place, from where this machine's own may be seen.
            with suppress(FileNotFoundError, ProcessLookupError):
                is_it = Path(f"/proc/{pid}/comm").read_text() == "systemd\n"
                if is_it and Path(f"/proc/{pid}/root/run/systemd/private").exists():
                    return Systemd(int(pid), log)
        time.sleep(0.02)
    raise AssertionError(f"systemd did not start: {log.read_text()}")
