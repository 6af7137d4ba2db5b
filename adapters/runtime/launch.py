"""Started in place of a workload's program, becomes it only when told to (F21).

Run by path as `python -I -S launch.py WORKLOAD`, with the standard library alone. The peer writes down who
this process is and only then sends what to execute. A peer that was killed before that closed the pipe
with its own end, so that no program ever runs that no record names; after `exec` the process keeps its
number and its start time, so that the record stays true.

File descriptors: 3 brings one line of JSON `{"argv", "file", "folder", "data_bytes", "file_bytes"}`;
4 takes the errno of an `exec` that failed, and closes by itself in one that did not.
"""

import errno
import json
import os
import resource
import select
import signal
import sys
import time
from typing import Any, NoReturn

ORDERS = 3
REPORT = 4
MAX_ORDERS = 256 * 1024
"""Bytes; more than any argv the peer makes."""
WAIT_SECONDS = 60.0
"""How long the peer may take to send orders: it writes one small file meanwhile."""
EXIT_UNTOLD = 125
EXIT_NOT_EXECUTED = 126
OOM_SCORE = "500"
"""Out of 1000: when the machine runs out of memory, the kernel ends a workload before the peer."""


def read_orders() -> dict[str, Any] | None:
    """The peer's line; None when the peer is gone or says nothing."""
    text = b""
    until = time.monotonic() + WAIT_SECONDS
    while not text.endswith(b"\n"):
        left = until - time.monotonic()
        if left <= 0 or len(text) > MAX_ORDERS or not select.select([ORDERS], [], [], left)[0]:
            return None
        part = os.read(ORDERS, 65536)
        if not part:
            return None
        text += part
    orders: dict[str, Any] = json.loads(text)
    return orders


def confine(orders: dict[str, Any]) -> None:
    """Set what the program and all its children are held to."""
    for number in range(1, signal.NSIG):
        # Python ignores some signals and exec passes that on; a program expects them as they are.
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                continue
    # The output is a file, and a program that prints without end must not fill the disk while no peer
    # lives to shorten it. Past the limit a write fails; with the signal ignored the program runs on.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    lower(resource.RLIMIT_FSIZE, orders["file_bytes"])
    lower(resource.RLIMIT_CORE, 0)
    if orders["data_bytes"] is not None:
        lower(resource.RLIMIT_DATA, orders["data_bytes"])
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(OOM_SCORE)
    except OSError:
        pass  # Not Linux, or a kernel that does not let us: the order of ending is then the kernel's own.


def lower(limit: int, value: int) -> None:
    """Hold both the soft and the hard limit to `value`, or to what is already lower."""
    _, hard = resource.getrlimit(limit)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (value, value))


def close_others() -> None:
    """Close what this process inherited beyond its output and the report."""
    for name in os.listdir("/dev/fd"):
        if int(name) > REPORT:
            try:
                os.close(int(name))
            except OSError:
                continue  # The one the listing itself used.


def main() -> NoReturn:
    """Wait for orders, confine this process, become the program."""
    orders = read_orders()
    if orders is None:
        os._exit(EXIT_UNTOLD)
    try:
        os.chdir(orders["folder"])
        confine(orders)
        os.set_inheritable(REPORT, False)
        os.close(ORDERS)
        close_others()
        os.execve(orders["file"], orders["argv"], os.environ)  # noqa: S606 - no shell is the point
    except OSError as error:
        os.write(REPORT, str(error.errno or errno.EIO).encode("ascii"))
        os._exit(EXIT_NOT_EXECUTED)


if __name__ == "__main__":
    sys.exit(main())
