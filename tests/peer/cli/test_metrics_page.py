"""`docs/metrics.md`: the lines that fetch a collector's key leave a good one alone."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()

CURL = '#!/bin/sh\ncat "$ANSWER"\n'
SUDO = '#!/bin/sh\n[ "$3" = prometheus ] && shift 3 && exec install "$@"\nexec "$@"\n'
"""Nobody is called prometheus here: the file is this person's own."""


def fetch(folder: Path, answer: str) -> subprocess.CompletedProcess[str]:
    """Run the page's lines against an answer; what they keep is under a folder."""
    bins, temporary = folder / "bin", folder / "tmp"
    for made in (bins, temporary, folder / "etc"):
        made.mkdir(exist_ok=True)
    for name, text in (("curl", CURL), ("sudo", SUDO)):
        (bins / name).write_text(text)
        (bins / name).chmod(0o755)
    (folder / "answer").write_text(answer)
    (folder / "best-peer-cert.pem").write_text("a certificate")
    lines = next(block for block in PAGE.split("```sh\n")[1:] if "key=$(mktemp)" in block).split("```")[0]
    environment = {
        "PATH": f"{bins}:{os.environ['PATH']}",
        "ANSWER": str(folder / "answer"),
        "TMPDIR": str(temporary),
    }
    return subprocess.run(
        ["sh", "-c", lines.replace("/etc/prometheus", str(folder / "etc"))],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_key_is_put_in_its_place_for_its_reader_alone(tmp_path: Path) -> None:
    ran = fetch(tmp_path, json.dumps({"access_token": "bpk_secret", "token_type": "Bearer"}))
    kept = tmp_path / "etc" / "best-peer.key"
    assert (ran.stdout, ran.stderr, kept.read_text()) == ("", "", "bpk_secret\n")
    assert kept.stat().st_mode & 0o777 == 0o400
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"error": "authorization_pending", "error_description": "nobody has approved it yet"}, "nobody has"),
        ({"error": "invalid_grant", "error_description": "it was used already"}, "it was used already"),
        (None, "the peer did not answer"),
    ],
)
def test_without_a_key_the_one_that_is_there_stays(tmp_path: Path, answer: Any, said: str) -> None:
    fetch(tmp_path, json.dumps({"access_token": "good"}))
    ran = fetch(tmp_path, "" if answer is None else json.dumps(answer))
    assert ran.stderr.startswith("No key: ")
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr
    assert (tmp_path / "etc" / "best-peer.key").read_text() == "good\n"
