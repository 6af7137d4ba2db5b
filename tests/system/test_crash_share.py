"""A handful of the crash tests (`scripts/soak` runs all of them): the program, killed and started again."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HANG = 300


def test_a_peer_killed_at_random_moments_loses_nothing_and_tells_nothing_twice(tmp_path: Path) -> None:
    """Its seed is fixed, and its moments are not: those are the machine's."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.support.soak",
            "--runs=3",
            "--real=0",
            "--docker=0",
            "--seed=7",
            f"--folder={tmp_path}",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 of 3 kills" in done.stdout
