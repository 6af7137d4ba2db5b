"""Kill a peer with kill -9 at random moments of a busy life, and check it after each restart.

`scripts/soak` runs it in the project's own environment.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import attrs
import trio

from tests.support.soak.kinds import fake, real
from tests.support.soak.results import write_results
from tests.support.soak.run import Kind, Tally, soak

RUNS, REAL = 200, 10
ROOT = Path(__file__).parents[3]


@attrs.frozen
class Plan:
    """What to do."""

    runs: int
    real: int
    seed: int
    folder: Path
    command: str


def main(arguments: list[str]) -> int:
    """Run it; the exit code: 0 when nothing was wrong."""
    options = _parser().parse_args(arguments)
    seed = options.seed if options.seed is not None else int(f"{datetime.now(UTC):%Y%m%d}")
    runs, real_runs = options.runs, options.real
    if options.share is not None:
        runs, real_runs = round(runs * options.share), round(real_runs * options.share)
    folder = Path(tempfile.mkdtemp(prefix="best-peer-soak-", dir=options.folder))
    plan = Plan(runs, real_runs, seed, folder, " ".join(["scripts/soak", *arguments]))
    say(f"soak: {runs} kills with fake engines, {real_runs} with real ones, seed {seed}, in {folder}")
    tallies = trio.run(carry_out, plan)
    problems = [problem for _, tally in tallies for problem in tally.problems]
    for problem in problems:
        say(f"WRONG: {problem}")
    if options.write and not problems:
        path = ROOT / "docs" / "crash-tests.md"
        write_results(path, tallies, command=plan.command, seed=seed, machine=machine())
        say(f"soak: wrote {path}")
    if problems:
        say(f"soak: {len(problems)} problems; what is left lies in {folder}; again: --seed {seed}")
        return 1
    say("soak: every command completed, nothing told was lost or told twice, no program was orphaned")
    _remove(folder)
    return 0


async def carry_out(plan: Plan) -> list[tuple[Kind, Tally]]:
    """Both kinds, one after the other."""
    done: list[tuple[Kind, Tally]] = []
    if plan.runs:
        kind = fake()
        done.append((kind, await soak(kind, plan.runs, plan.folder, plan.seed, say)))
    if plan.real and not any(tally.problems for _, tally in done):
        kind = real(plan.folder / "models")
        done.append((kind, await soak(kind, plan.real, plan.folder, plan.seed, say, each=5)))
    return done


def say(line: str) -> None:
    """Tell who watches."""
    print(line, flush=True)


def machine() -> str:
    """What it ran on."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30)
    return (
        f"{os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS, help=f"kills with fake engines ({RUNS})")
    parser.add_argument("--real", type=int, default=REAL, help=f"kills with real engines ({REAL})")
    parser.add_argument("--share", type=float, help="only so much of both: 0.1 is a tenth")
    parser.add_argument("--seed", type=int, help="of every choice; today's date if left out")
    parser.add_argument("--folder", type=Path, help="where to make the data folders")
    parser.add_argument("--write", action="store_true", help="write docs/crash-tests.md")
    return parser


def _remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
