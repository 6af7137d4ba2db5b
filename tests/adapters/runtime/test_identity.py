"""A process is known by more than its number."""

import os
import subprocess
import sys

import attrs

from adapters.runtime.identity import _identify_by_ps, identify, is_running


def test_a_process_is_itself_and_not_one_that_started_at_another_time() -> None:
    own = identify(os.getpid())

    assert own is not None
    assert is_running(own)
    assert not is_running(attrs.evolve(own, started="1"))
    assert not is_running(attrs.evolve(own, boot="another"))


def test_a_zombie_does_not_run() -> None:
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE)
    identity = identify(child.pid)
    assert identity is not None
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    assert not is_running(identity)
    assert identify(child.pid) is None
    child.wait()


def test_where_there_is_no_proc_ps_tells_who_a_process_is() -> None:
    own = _identify_by_ps(os.getpid())

    assert own is not None
    assert own.pid == os.getpid()
    assert own == _identify_by_ps(os.getpid())
    assert _identify_by_ps(2**22 + 1) is None
