"""`scripts/environment`: two scripts at once in a fresh clone make one environment."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECONDS = 60
"""A bound on a hang, no measure of speed."""

PYTHON = """#!/bin/sh
# A Python that takes as long to make an environment as the test wants.
case $* in
  *venv*)
    echo "environment" >>"$MADE"
    for last; do :; done
    cat "$GATE" >/dev/null
    mkdir -p "$last/bin"
    cp "$0" "$last/bin/python"
    touch "$last/bin/pip"
    chmod +x "$last/bin/pip"
    ;;
  *--group*) echo "packages" >>"$MADE" ;;
esac
"""


def test_the_second_waits_for_the_first_and_makes_nothing_again(tmp_path: Path) -> None:
    python, made, gate = tmp_path / "python", tmp_path / "made", tmp_path / "gate"
    python.write_text(PYTHON)
    python.chmod(0o755)
    os.mkfifo(gate)
    environ = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "BEST_PEER_PYTHON": str(python),
        "BEST_PEER_VENV": str(tmp_path / "new" / "venv"),
        "MADE": str(made),
        "GATE": str(gate),
    }

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [
                "timeout",
                str(SECONDS),
                "bash",
                "-c",
                f". '{ROOT}/scripts/environment'; environment --group dev",
            ],
            env=environ,
            stderr=subprocess.PIPE,
            text=True,
        )

    held = os.open(gate, os.O_RDWR)
    with start() as first:
        until = time.monotonic() + SECONDS
        while not made.exists() and first.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        with start() as second:
            assert second.stderr is not None
            line = second.stderr.readline()
            was_busy = first.poll() is None
            os.close(held)
            second.communicate()
        said = first.communicate()[1]
    assert "waiting for it" in line
    assert was_busy
    assert (first.returncode, second.returncode) == (0, 0), said
    assert made.read_text().splitlines() == ["environment", "packages"]
