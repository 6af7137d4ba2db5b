"""What an engine leaves that was killed while it started a container: processes that it knows nothing of.

When it is back the container counts as never started. It removes that when it is asked to, and what runs in
it, the program itself at the worst, runs on for good.
"""

import os
import signal
from pathlib import Path

from adapters.runtime.docker.groups import PROC, by_container


def end_leftovers(identity: str, proc: Path = PROC) -> frozenset[int]:
    """Kill the processes of a container that its engine has removed; those that this user may not. Blocks.

    Args:
        identity: the container's id; its processes are known by their control groups.
        proc: where the kernel tells of them. Where it does not tell of all there are none.
    """
    kept = set()
    for pid in (by_container(None, proc) or {}).get(identity, ()):
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            # It has ended.
            continue
        try:
            # Looked at again through the descriptor: the number may have gone to another process since.
            if identity in (by_container([pid], proc) or {}):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        except PermissionError:
            kept.add(pid)
        except OSError:
            continue
        finally:
            os.close(handle)
    return frozenset(kept)
