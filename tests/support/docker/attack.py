"""A hostile program: tries what it should not be able to do, and prints as JSON what came of it.

Runs in an image with nothing but Python's standard library: `python3 /attack.py [ADDRESS:PORT ...]`. Each
attempt is "done" or the name of the error that stopped it.
"""

import contextlib
import ctypes
import errno
import json
import os
import platform
import resource
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
CALLS = {
    "x86_64": {"add_key": 248, "bpf": 321, "perf_event_open": 298, "init_module": 175, "kexec_load": 246},
    "aarch64": {"add_key": 217, "bpf": 280, "perf_event_open": 241, "init_module": 105, "kexec_load": 104},
}[platform.machine()]
MEMORY_GROUP = "/sys/fs/cgroup/memory" if os.path.isdir("/sys/fs/cgroup/memory") else "/sys/fs/cgroup"
CEILINGS = [f"{MEMORY_GROUP}/memory.limit_in_bytes", f"{MEMORY_GROUP}/memory.max"]
CONNECT_SECONDS = 5
NEW_NS, NEW_USER, REMOUNT_BIND = 0x00020000, 0x10000000, 0x20 | 0x1000


def check(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), "")


def mount(source: str, target: str, kind: str, flags: int = 0) -> None:
    check(LIBC.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), None))


def write(path: str, text: str = "x") -> None:
    with open(path, "w") as file:
        file.write(text)


def call(name: str) -> None:
    # Arguments that no kernel takes: whether the call is there at all is the question.
    check(LIBC.syscall(ctypes.c_long(CALLS[name]), 0, 0, 0, 0, 0))


def connect(family: int, address: Any) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as stream:
        stream.settimeout(CONNECT_SECONDS)
        stream.connect(address)


def reach(address: str) -> str:
    """Connect to HOST:PORT, or to @NAME, an abstract socket."""
    try:
        if address.startswith("@"):
            connect(socket.AF_UNIX, f"\0{address[1:]}")
        else:
            host, port = address.rsplit(":", 1)
            connect(socket.AF_INET, (host, int(port)))
    except OSError as error:
        return name_of(error)
    return "done"


def name_of(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, str(error))


def output_of(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout.strip() or f"exit {done.returncode}"


def raise_limit(which: int) -> None:
    hard = resource.getrlimit(which)[1]
    resource.setrlimit(which, (hard, hard + 1))


ATTEMPTS: dict[str, Callable[[], Any]] = {
    "write /": lambda: write("/attack"),
    "write /etc": lambda: write("/etc/attack"),
    "write /usr/bin": lambda: write("/usr/bin/attack"),
    "write /etc/hosts": lambda: write("/etc/hosts"),
    "write /dev": lambda: write("/dev/attack"),
    "change the mode of /bin": lambda: os.chmod("/bin", 0o777),
    "give /tmp away": lambda: os.chown("/tmp", 1, 1),
    "remount / for writing": lambda: mount("", "/", "", REMOUNT_BIND),
    "mount a tmpfs": lambda: mount("none", "/tmp", "tmpfs"),
    "mount a proc": lambda: mount("none", "/tmp", "proc"),
    "make a disk": lambda: os.mknod("/tmp/disk", 0o666 | stat.S_IFBLK, os.makedev(8, 0)),
    "make the memory": lambda: os.mknod("/tmp/memory", 0o666 | stat.S_IFCHR, os.makedev(1, 1)),
    "become uid 0": lambda: os.setresuid(0, 0, 0),
    "become uid 1": lambda: os.setresuid(1, 1, 1),
    "become gid 1": lambda: os.setresgid(1, 1, 1),
    "join a group": lambda: os.setgroups([0, 6]),
    "change the root": lambda: os.chroot("/tmp"),
    "make a user namespace": lambda: check(LIBC.unshare(NEW_USER)),
    "make a mount namespace": lambda: check(LIBC.unshare(NEW_NS)),
    "send raw ICMP": lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close(),
    "send raw packets": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close(),
    "rename the machine": lambda: socket.sethostname("attack"),
    "set the clock": lambda: time.clock_settime(time.CLOCK_REALTIME, time.time()),
    "read the kernel's log": lambda: check(LIBC.klogctl(3, ctypes.create_string_buffer(64), 64)),
    "write /proc/sys": lambda: write("/proc/sys/kernel/core_pattern", "|/tmp/attack"),
    "write /proc/sysrq-trigger": lambda: write("/proc/sysrq-trigger", "h"),
    "write /sys": lambda: write("/sys/kernel/uevent_helper"),
    "make a control group": lambda: os.mkdir(f"{MEMORY_GROUP}/attack"),
    "raise its memory ceiling": lambda: write(next(filter(os.path.exists, CEILINGS)), str(1 << 40)),
    "raise its core limit": lambda: raise_limit(resource.RLIMIT_CORE),
    "raise its file limit": lambda: raise_limit(resource.RLIMIT_NOFILE),
    "raise its priority": lambda: os.nice(-5),
    "reboot": lambda: check(LIBC.reboot(0)),
    "call add_key": lambda: call("add_key"),
    "call bpf": lambda: call("bpf"),
    "call perf_event_open": lambda: call("perf_event_open"),
    "call init_module": lambda: call("init_module"),
    "call kexec_load": lambda: call("kexec_load"),
    "ask Docker": lambda: connect(socket.AF_UNIX, "/var/run/docker.sock"),
    "ask Docker in /run": lambda: connect(socket.AF_UNIX, "/run/docker.sock"),
}


def attempt(what: Callable[[], Any]) -> str:
    child, parent = os.pipe()
    pid = os.fork()
    if pid == 0:
        # In a process of its own: what one attempt changed is no help to the next.
        try:
            what()
            outcome = "done"
        except OSError as error:
            outcome = name_of(error)
        except ValueError as error:
            outcome = str(error)
        os.write(parent, outcome.encode())
        os._exit(0)
    os.close(parent)
    with os.fdopen(child, "rb") as said:
        outcome = said.read().decode()
    os.waitpid(pid, 0)
    return outcome or "it died"


def status() -> dict[str, str]:
    wanted = (
        "CapInh",
        "CapPrm",
        "CapEff",
        "CapBnd",
        "CapAmb",
        "NoNewPrivs",
        "Seccomp",
        "Uid",
        "Gid",
        "Groups",
    )
    with open("/proc/self/status") as file:
        pairs = [line.rstrip("\n").split(":\t", 1) for line in file if line.split(":")[0] in wanted]
    return {pair[0]: pair[1] if len(pair) > 1 else "" for pair in pairs}


def writable() -> list[str]:
    """Every folder in which it can make a file."""
    found = []
    for folder, _, _ in os.walk("/"):
        path = f"{folder.rstrip('/')}/attack"
        with contextlib.suppress(OSError):
            write(path)
            os.unlink(path)
            found.append(folder)
    return found


def first_of(*paths: str) -> str | None:
    for path in paths:
        with contextlib.suppress(OSError), open(path) as file:
            return file.read().strip()
    return None


def devices() -> list[str]:
    found = []
    for folder, _, names in os.walk("/dev"):
        for name in names:
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                found.append(path)
    return sorted(found)


def with_ipv6() -> list[str]:
    """Interfaces that have an address by which there are no rules on some engines."""
    lines = (first_of("/proc/net/if_inet6") or "").splitlines()
    return sorted({line.split()[5] for line in lines})


def disks() -> list[str]:
    """Where a disk of the machine is mounted."""
    with open("/proc/self/mounts") as file:
        mounts = [line.split() for line in file]
    return [fields[1] for fields in mounts if fields[0].startswith("/dev/")]


def size(path: str) -> int:
    about = os.statvfs(path)
    return about.f_blocks * about.f_frsize


def report(addresses: list[str]) -> dict[str, Any]:
    own = [pid for pid in os.listdir("/proc") if pid.isdecimal()]
    with ThreadPoolExecutor(len(addresses) or 1) as at_once:
        reached = dict(zip(addresses, at_once.map(reach, addresses), strict=True))
    write("/tmp/program", "#!/bin/sh\necho ran\n")
    os.chmod("/tmp/program", 0o755)
    return {
        "attempts": {name: attempt(what) for name, what in ATTEMPTS.items()},
        "reached": reached,
        "status": status(),
        "setuid program": output_of("/bin/setuid-python", "-c", "import os; print(os.geteuid())"),
        "capable program": output_of(
            "/bin/capable-python",
            "-c",
            "print(*[l.split()[1] for l in open('/proc/self/status') if 'CapEff' in l])",
        ),
        "program in /tmp": output_of("/tmp/program"),
        "interfaces with IPv6": with_ipv6(),
        "interfaces": sorted(os.listdir("/sys/class/net")),
        "devices": devices(),
        "disks": disks(),
        "writable": writable(),
        "processes": sorted(first_of(f"/proc/{pid}/comm") or "" for pid in own),
        "environment": dict(os.environ),
        "core limit": resource.getrlimit(resource.RLIMIT_CORE),
        "file limit": resource.getrlimit(resource.RLIMIT_NOFILE),
        "/tmp bytes": size("/tmp"),
        "/dev/shm bytes": size("/dev/shm"),
        "processor": first_of("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu.max"),
        "memory": first_of("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max"),
        "memory and swap": first_of("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes"),
        "swap": first_of("/sys/fs/cgroup/memory.swap.max"),
        "tasks": first_of("/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids.max"),
        "apparmor": first_of("/proc/self/attr/current"),
    }


if __name__ == "__main__":
    print(json.dumps(report(sys.argv[1:])))
