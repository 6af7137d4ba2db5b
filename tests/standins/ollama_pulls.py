"""How a stand-in for Ollama pulls: out of a library on disk, and as badly as it was told.

The script of a model may hold `pulls`, a list with one entry for each attempt (the last counts for all that
follow), each with any of:

    stall_at      say the same for ever once that part of a layer came (0 to 1)
    quiet_at      say nothing at all for ever from there on
    break_at      close the connection there
    error_at      [part, words]: a line with an error there
    error         words: an error before the first line
    fall_back     from the middle of each layer, fall back once
    no_success    end well without the last line
    ends_early    end well before the model is there, with no error either
    verify        seconds of silence while digests are checked
    step          seconds between two lines
    hang          seconds of silence before the first line
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.standins.library import blob_path, manifest_path

Tell = Callable[[dict[str, Any]], None]
STEPS = 8
FOR_EVER = 3600.0


class PullFailed(Exception):
    """Raised when a pull ends in an error that is told."""


class Gone(Exception):
    """Raised when the connection is to be closed."""


def pull(
    library: Path, registry: Path | None, model: str, script: dict[str, Any], attempt: int, tell: Tell
) -> None:
    """Pull a model.

    Args:
        library: where to.
        registry: where from; None for a registry that cannot be reached.
        model: its name.
        script: what is said of the model.
        attempt: counted from 1.
        tell: takes each line.
    """
    pulls = script.get("pulls") or [{}]
    how = pulls[min(attempt, len(pulls)) - 1]
    time.sleep(how.get("hang", 0))
    if "error" in how:
        raise PullFailed(how["error"])
    tell({"status": "pulling manifest"})
    source = None if registry is None else manifest_path(registry, model)
    if registry is None or source is None:
        raise PullFailed(
            "pull model manifest: Get registry: dial tcp: lookup registry.ollama.ai: no such host"
        )
    if not source.exists():
        raise PullFailed("pull model manifest: file does not exist")
    manifest = json.loads(source.read_bytes())
    layers = [*manifest["layers"], manifest["config"]]
    for layer in layers:
        _layer(library, registry, layer, how, tell)
    if how.get("ends_early"):
        return
    tell({"status": "verifying sha256 digest"})
    time.sleep(how.get("verify", 0))
    tell({"status": "writing manifest"})
    target = manifest_path(library, model)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    except OSError as error:
        raise PullFailed(f"open {target}: {(error.strerror or '').lower()}") from error
    if not how.get("no_success"):
        tell({"status": "success"})


def _layer(library: Path, registry: Path, layer: dict[str, Any], how: dict[str, Any], tell: Tell) -> None:
    digest, total = layer["digest"], layer["size"]
    said = {"status": f"pulling {digest.removeprefix('sha256:')[:12]}", "digest": digest, "total": total}
    target = blob_path(library, digest)
    if target.exists():
        tell({**said, "completed": total})
        return
    for step in range(STEPS + 1):
        part = step / STEPS
        tell({**said, "completed": int(total * part)} if step else said)
        _harm(part, how, {**said, "completed": int(total * part)}, tell)
        if how.get("fall_back") and step == STEPS // 2:
            tell({**said, "completed": int(total / 4)})
        time.sleep(how.get("step", 0))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(blob_path(registry, digest), target)
    except OSError as error:
        raise PullFailed(f"open {target}: {(error.strerror or '').lower()}") from error


def _harm(part: float, how: dict[str, Any], line: dict[str, Any], tell: Tell) -> None:
    if part >= how.get("stall_at", 2):
        while True:
            tell(line)
            time.sleep(0.05)
    if part >= how.get("quiet_at", 2):
        time.sleep(FOR_EVER)
    if part >= how.get("break_at", 2):
        raise Gone
    where, words = how.get("error_at", (2, ""))
    if part >= where:
        raise PullFailed(words)
