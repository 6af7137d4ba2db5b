"""Kill a peer with kill -9 at random moments of a busy life, and check it after each restart.

In a bed (`scripts/testbed scripts/soak`) it, its container engine and its registry are also killed at each
phase of a deploy and of a job.

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

from tests.support.docker.bed import VARIABLE, the_bed
from tests.support.soak.containers.cases import FULL, cases_of
from tests.support.soak.containers.run import kill_all
from tests.support.soak.kinds import fake, real
from tests.support.soak.results import Results
from tests.support.soak.run import soak

RUNS, REAL = 200, 10
ROOT = Path(__file__).parents[3]


@attrs.frozen
class Plan:
    """What to do: how many kills of each kind."""

    runs: int
    real: int
    containers: int
    seed: int
    folder: Path


def main(arguments: list[str]) -> int:
    """Run it; the exit code: 0 when nothing was wrong."""
    options = _parser().parse_args(arguments)
    seed = options.seed if options.seed is not None else int(f"{datetime.now(UTC):%Y%m%d}")
    share = 1.0 if options.share is None else options.share
    runs, real_runs, containers = (round(n * share) for n in (options.runs, options.real, options.docker))
    if containers and VARIABLE not in os.environ:
        say("soak: kills with containers are left out; scripts/testbed scripts/soak makes them too")
        containers = 0
    folder = Path(tempfile.mkdtemp(prefix="best-peer-soak-", dir=options.folder))
    plan = Plan(runs, real_runs, containers, seed, folder)
    say(
        f"soak: {runs} kills with fake engines, {real_runs} with real ones, {containers} with containers, "
        f"seed {seed}, in {folder}"
    )
    results = Results(" ".join(["scripts/soak", *arguments]), seed, machine())
    trio.run(carry_out, plan, results)
    for problem in results.problems:
        say(f"WRONG: {problem}")
    if results.problems:
        say(f"soak: {len(results.problems)} problems; what is left lies in {folder}; again: --seed {seed}")
        return 1
    if options.write:
        path = ROOT / "docs" / "crash-tests.md"
        results.write(path)
        say(f"soak: wrote {path}")
    say("soak: every command completed, nothing told was lost or told twice, nothing was orphaned")
    _remove(folder)
    return 0


async def carry_out(plan: Plan, results: Results) -> None:
    """All kinds, one after the other, up to the first with which something is wrong."""
    if plan.runs:
        kind = fake()
        results.of_peers[kind.name] = await soak(kind, plan.runs, plan.folder, plan.seed, say)
    if plan.real and not results.problems:
        kind = real(plan.folder / "models")
        results.of_peers[kind.name] = await soak(kind, plan.real, plan.folder, plan.seed, say, each=5)
    if plan.containers and not results.problems:
        cases = cases_of(plan.seed, plan.containers)
        results.of_containers = await kill_all(the_bed(), cases, plan.folder, plan.seed, say)


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
    words = f"kills of the peer, its container engine and its registry, in a bed ({FULL})"
    parser.add_argument("--docker", type=int, default=FULL, help=words)
    parser.add_argument("--share", type=float, help="only so much of each: 0.1 is a tenth")
    parser.add_argument("--seed", type=int, help="of every choice; today's date if left out")
    parser.add_argument("--folder", type=Path, help="where to make the data folders")
    parser.add_argument("--write", action="store_true", help="put what came of it into docs/crash-tests.md")
    return parser


def _remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
