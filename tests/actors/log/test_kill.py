"""`kill -9` at any moment: what was acknowledged is there at the next start, once, and numbered through."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import orjson
import pytest
import trio

from actors.log.accepted import AcceptedLog
from tests.support.logs import contents, ids, open_log, whole_page, writing

ROOT = Path(__file__).parents[3]
RUNS = 20
PER_FOLDER = 5
"""Runs over one folder, one after the other: each start meets what the kill before it left."""


def run_and_kill(folder: Path, seed: int) -> list[str]:
    """Start the appender, kill it after so many acknowledgements; all it printed."""
    rng = random.Random(seed)
    enough = rng.randrange(2, 400)
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.appender", folder, str(seed), str(rng.choice((1, 4, 16)))],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        said = process.stdout.fileno()
        text = b""
        while text.count(b"\n") < enough:
            chunk = os.read(said, 65536)
            assert chunk, "the appender ended by itself"
            text += chunk
        process.kill()
        while chunk := os.read(said, 65536):
            text += chunk
    return text.decode().splitlines()


@pytest.mark.parametrize("group", range(RUNS // PER_FOLDER))
async def test_what_was_acknowledged_survives_kill_9_at_any_moment(tmp_path: Path, group: int) -> None:
    told: list[str] = []
    accepted: list[str] = []
    for seed in range(group * PER_FOLDER, (group + 1) * PER_FOLDER):
        said = await trio.to_thread.run_sync(run_and_kill, tmp_path, seed)
        assert said[0] == "running"
        told += [line.removeprefix("told ") for line in said if line.startswith("told ")]
        accepted += [line.removeprefix("accepted ") for line in said if line.startswith("accepted ")]
        async with writing(await open_log(tmp_path)) as log:
            lines = await whole_page(log)
        assert ids(lines) == [f"evt-{n}" for n in range(len(lines))]
        names = [text.split(":")[0] for text in contents(lines)]
        _holds_once(names, told)
        _in_the_order_of_each_writer(names)
        kept = await _accepted_ids(tmp_path)
        _holds_once(kept, accepted)
        _in_the_order_of_each_writer(kept)
    _is_all_json(tmp_path)


def _is_all_json(folder: Path) -> None:
    for path in folder.glob("**/*.jsonl"):
        assert all(orjson.loads(line) for line in path.read_bytes().splitlines())


def _holds_once(kept: list[str], acknowledged: Iterable[str]) -> None:
    assert len(kept) == len(set(kept))
    assert set(acknowledged) <= set(kept)


def _in_the_order_of_each_writer(names: list[str]) -> None:
    """No gap either: a writer waits for each before its next, and what one tells at once is told together."""
    last: dict[str, int] = {}
    for name in names:
        writer, number = name.rsplit("-", 1)
        assert int(number) == last.get(writer, -1) + 1
        last[writer] = int(number)


async def _accepted_ids(folder: Path) -> list[str]:
    found: list[str] = []
    log = await AcceptedLog.open(
        folder / "accepted.jsonl",
        unfinished=lambda: found,
        found=lambda record: found.append(record.id),
        kept=lambda record: None,
        failed=lambda record: None,
    )
    for identifier in found:
        known = log.find(identifier)
        assert known is not None
        assert log.owner(f"c-{identifier}") == known[0].holder == identifier.rsplit("-", 1)[0]
    log.close()
    return found
