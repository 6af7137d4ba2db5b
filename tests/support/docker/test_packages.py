"""What somebody is told whose machine lacks what the tests with containers need."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = """
die() { echo "error: $*" >&2; exit 2; }
id() { echo 1000; }
. scripts/packages
packages "the tests need Docker's engine" coreutils:ls docker.io:no-such-dockerd runc:no-such-runc
echo "there is nothing to do"
"""


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)


def test_who_is_not_root_is_told_in_one_line_how_to_get_what_is_missing() -> None:
    told = run(SCRIPT)

    assert told.returncode == 2
    assert told.stdout == ""
    assert told.stderr == ("error: the tests need Docker's engine: sudo apt-get install docker.io runc\n")


def test_where_nothing_is_missing_nothing_is_said() -> None:
    told = run(SCRIPT.replace("no-such-dockerd", "bash").replace("no-such-runc", "bash"))

    assert (told.returncode, told.stdout, told.stderr) == (0, "there is nothing to do\n", "")


@pytest.mark.parametrize("words", ["scripts/test --without-docker", "docker.io:dockerd"])
def test_a_bed_names_its_packages_and_the_way_without_them(words: str) -> None:
    assert words in (ROOT / "scripts/testbed").read_text()
