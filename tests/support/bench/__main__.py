"""`scripts/bench`: measures what the product is to be as fast as, row by row."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.bench import (
    appends,
    commands,
    containers,
    crowds,
    machine,
    pages,
    prompts,
    reads,
    replay,
    starting,
    streams,
    tenants,
)
from tests.support.bench.bench import Bench
from tests.support.bench.child import ROOT
from tests.support.bench.figures import Line, NotMeasured
from tests.support.bench.report import Results, markdown_text, terminal_text

DOCUMENT = ROOT / "docs" / "benchmarks.md"
ROWS: dict[str, tuple[Callable[[Bench], list[Line]], str]] = {
    "commands": (commands.measure, "POST /commands against a trivial POST on the same server"),
    "reads": (reads.measure, "small GETs against a trivial GET"),
    "pages": (pages.measure, "pages of a million facts against pages of a thousand"),
    "appends": (appends.measure, "durable appends against a loop in C"),
    "streams": (
        streams.measure,
        "event streams against raw Trio sockets, memory, a thousand, stalled readers",
    ),
    "replay": (replay.measure, "a restart over a million facts against parsing them"),
    "prompts": (prompts.measure, "prompts through the door against asking the engine"),
    "containers": (
        containers.measure,
        "jobs and deployments against the same calls made bare, on a Docker engine of its own (root)",
    ),
    "actors": (crowds.measure, "ten thousand actors against bare Trio tasks"),
    "crowd": (
        tenants.measure,
        "authentication, admission and metrics among 1,000 keys and 200 workloads against one of each",
    ),
    "start": (starting.measure, "the program's start against an import, and its idling"),
}


def main(arguments: Sequence[str]) -> int:
    """Measure; the exit code: 0 all was measured, 1 a row could not be, 2 a wrong command line."""
    asked = _parser().parse_args(arguments)
    # A stop by signal ends what was started and removes what was written, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    names = asked.rows or list(ROWS)
    if asked.write and (asked.quick or asked.rows):
        print("error: --write takes a whole run: leave out --quick and the rows", file=sys.stderr)
        return 2
    parent = asked.scratch or machine.on_disk([Path(tempfile.gettempdir()), Path("/var/tmp"), ROOT])
    scratch = Path(tempfile.mkdtemp(prefix="best-peer-bench-", dir=parent))
    where = machine.describe(scratch)
    rows: dict[str, list[Line]] = {}
    failures: dict[str, str] = {}
    try:
        bench = Bench(scratch, quick=asked.quick)
        for name in names:
            print(f"{name}: {ROWS[name][1]}", file=sys.stderr, flush=True)
            try:
                rows[name] = ROWS[name][0](bench)
            except NotMeasured as why:
                failures[name] = str(why)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    command = " ".join(["scripts/bench", *arguments])
    results = Results(where, command, rows, failures)
    print(terminal_text(results))
    if asked.quick:
        print("a quick look: these figures mean nothing")
    if asked.write and not failures:
        DOCUMENT.write_text(markdown_text(results), encoding="utf-8")
        print(f"wrote {DOCUMENT}")
    return 1 if failures else 0


def _row(name: str) -> str:
    if name not in ROWS:
        raise argparse.ArgumentTypeError(f"{name!r} is no row; the rows are {', '.join(ROWS)}")
    return name


def _parser() -> argparse.ArgumentParser:
    rows = "\n".join(f"  {name:10} {what}" for name, (_, what) in ROWS.items())
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measures ours and a baseline side by side, in turn, and holds the ratio to its goal.",
        epilog=f"rows:\n{rows}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("rows", nargs="*", metavar="row", type=_row, help="what to measure; all without")
    parser.add_argument(
        "--quick", action="store_true", help="small counts: only to see that everything works"
    )
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md (a whole run)")
    parser.add_argument(
        "--scratch", type=Path, help="a folder on the disk to measure; the temporary one without"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
