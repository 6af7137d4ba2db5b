"""One program that this peer watches: its own child, or one adopted after a restart."""

import os
import signal
import threading
from typing import Final

import attrs
import trio

from adapters.runtime.family import end_family, signal_family
from adapters.runtime.identity import Identity, is_running
from adapters.runtime.oom import OomKills
from adapters.runtime.port import Exit
from adapters.runtime.record import Record

POLL_SECONDS: Final = 1.0
"""How often a process is looked for where the kernel cannot tell its end."""


@attrs.define(eq=False)
class Watched:
    """A recorded program that lived when it was last looked at.

    While it is our own child and not reaped, its number cannot go to another process, so its session is
    surely its own. `_reaping` keeps that true between a look and a signal from another thread.
    """

    record: Record
    adopted: bool
    turn: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    exit: Exit | None = attrs.field(default=None, init=False)
    killed: bool = attrs.field(default=False, init=False)
    _kills: tuple[OomKills | None, ...] = attrs.field(default=(), init=False)
    """Its group's counts at the last two looks at which it lived, the older first."""
    _reaped: bool = attrs.field(default=False, init=False)
    _reaping: threading.Lock = attrs.field(factory=threading.Lock, init=False)

    @property
    def identity(self) -> Identity:
        """Which process it is."""
        return self.record.identity

    def is_running(self) -> bool:
        """Whether it lives now. A look at /proc: microseconds."""
        return self.exit is None and is_running(self.identity)

    def note(self, kills: OomKills | None) -> None:
        """Note its group's count while it lives; what was counted until then was not of it."""
        self._kills = (*self._kills, kills)[-2:]

    def oom_killed(self) -> bool:
        """Whether the kernel has ended a process of its group for want of memory about when it died.

        Since the look before the last: the count rises before a large program is gone, and the last look may
        have come between the two.
        """
        before = self._kills[0] if self._kills else None
        return before is not None and before.have_risen()

    async def ended(self) -> None:
        """Wait until the program itself is dead; it is not reaped by that."""
        handle = _descriptor(self.identity, is_sure=self._is_own())
        if handle is None:
            while is_running(self.identity):  # noqa: ASYNC110 - the kernel tells nobody
                await trio.sleep(POLL_SECONDS)
            return
        try:
            await trio.lowlevel.wait_readable(handle)
        finally:
            trio.lowlevel.notify_closing(handle)
            os.close(handle)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program and all it started. Blocks for milliseconds."""
        with self._reaping:
            signal_family(self.record.instance, self.record.workload, self._session(), number)

    def end_rest(self, seconds: float) -> bool:
        """Kill what is left of it; whether all was gone in time. Blocks that long."""
        with self._reaping:
            return end_family(self.record.instance, self.record.workload, self._session(), seconds=seconds)

    def reap(self) -> int | None:
        """Take the exit code of a dead program; None where it is not ours to know."""
        with self._reaping:
            try:
                pid, status = os.waitpid(self.identity.pid, os.WNOHANG)
            except ChildProcessError:
                pid, status = 0, 0
            self._reaped = True
        if pid == 0 or self.adopted:
            return None
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else 128 - code

    def _session(self) -> int | None:
        """The session it leads, while that number is surely its own."""
        return self.identity.pid if self._is_own() or is_running(self.identity) else None

    def _is_own(self) -> bool:
        """Whether its number is that of a child of ours that was not reaped."""
        return not self.adopted and not self._reaped


def _descriptor(identity: Identity, *, is_sure: bool) -> int | None:
    """A descriptor that becomes readable at the process's end; None where there is none, or it has ended.

    Args:
        identity: the process.
        is_sure: its number can be no other's. The end of the last of its threads is then waited for: a killed
            program's first is often gone before the others, and until then it has no exit code.
    """
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        handle = os.pidfd_open(identity.pid)
    except OSError:
        return None
    # Only now is it certain whose descriptor it is.
    if is_sure or is_running(identity):
        return handle
    os.close(handle)
    return None
