"""A program that does what a test tells it over its loopback port: `python -I -S puppet.py PORT`.

One line of JSON a connection, `[order, argument]`; the answer is one line of JSON, sent when it is done.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from typing import Any

SLEEPER = [sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"]


def obey(order: str, argument: Any) -> Any:
    """Do it and say what came of it."""
    match order:
        case "write":
            os.write(1, argument.encode())
        case "flood":
            return flood(argument)
        case "ignore-term":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        case "spawn":
            child = subprocess.Popen(SLEEPER, start_new_session=argument == "session")
            return child.pid
        case "look":
            return look()
        case "allocate":
            return allocate(argument)
        case _:
            raise ValueError(order)
    return None


def flood(size: int) -> int:
    """Write so many bytes to the output; how many were taken."""
    taken = 0
    try:
        while taken < size:
            taken += os.write(1, b"x" * 1023 + b"\n")
    except OSError:
        pass
    return taken


def allocate(size: int) -> bool:
    """Whether so much memory is to be had."""
    try:
        bytearray(size)
    except MemoryError:
        return False
    return True


def look() -> dict[str, Any]:
    """What this program was given."""
    return {
        "pid": os.getpid(),
        "session": os.getsid(0),
        "argv": sys.argv,
        "environment": dict(os.environ),
        "files": sorted(int(name) for name in os.listdir("/proc/self/fd")),
        "stdin": os.readlink("/proc/self/fd/0"),
        "folder": os.getcwd(),
    }


def main() -> None:
    """Serve until told to end."""
    with socket.create_server((os.environ.get("PUPPET_HOST", "127.0.0.1"), int(sys.argv[1]))) as listener:
        while True:
            connection, _ = listener.accept()
            with connection, connection.makefile("rwb") as stream:
                order, argument = json.loads(stream.readline())
                if order == "exit":
                    os._exit(argument)
                if order == "signal":
                    os.kill(os.getpid(), argument)
                stream.write(json.dumps(obey(order, argument)).encode() + b"\n")


if __name__ == "__main__":
    main()
