"""Writes what a soak came to into the documentation."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.soak.run import Kind, Tally

WHAT = {
    "fake": "The program with `BEST_PEER_RUNTIME=fake`: all of it but the engines, which its data folder "
    "remembers as running.",
    "real": "The program with `BEST_PEER_RUNTIME=process`: llama.cpp's server serving a tiny random model.",
}

ROWS = (
    ("kills with `kill -9`", "kills"),
    ("of them during a start, recovery included", "in_a_start"),
    ("of them with commands under way", "under_way"),
    ("commands under way at those kills", "commands_under_way"),
    ("restarts onto half a line at the end of a log, as a power cut leaves it", "torn"),
    ("keys revoked or given back", "keys_revoked"),
    ("commands acknowledged", "acknowledged"),
    ("commands whose sender got no answer, since the peer was killed", "unanswered"),
    ("of them kept, and answered when sent again", "unanswered_kept"),
    ("commands kept in all", "accepted"),
    ("facts told", "facts"),
    ("facts that a stream delivered", "delivered"),
    ("problems", "problems"),
)

TEXT = """# Crash tests

A peer is kept busy by four keys at once: deploys, prompts, undeploys, jobs run and stopped, retries, event
streams, keys given back and taken back. Its process is killed with `kill -9` at a random moment; a quarter of
the kills are followed by another during the start that comes after. Then it is started again on the same data
folder, and once every command has completed everything below is checked from outside: in the log's files,
through the door, and among the machine's processes. The checks share no code with the product
(`tests/support/soak/`).

Run it with `scripts/soak`. `--share 0.1` runs a tenth, as CI does; `--seed N` makes the same choices again,
though the moments depend on the machine as well; `--write` writes this page.

## Checked after each restart

- Every command that was kept has completed, by its own kind of completing fact, exactly once. A deployment's
  and a job's facts stand in order, it ends once, and nothing is told of it after its end.
- Every acknowledged command was kept, every refused one was not. A sample of them, sent again, gets the same
  receipts. One whose sender got no answer is answered when sent again, or refused, and then left nothing.
- The log begins with every byte that lay in it when the process was killed, but for a torn last line. Every
  fact that a stream delivered stands in it, byte for byte. Facts are numbered without gap or repeat.
- A stream that goes on with `Last-Event-ID` is sent each fact once, in order. A key's pages hold its facts,
  all of them, and nobody else's.
- The memory promised is the sum over what lives. Work of a key that was taken back has ended.
- What runs is what lives: no program without its deployment or job, no deployment or job without its program.
  Nothing is kept of what has ended.

## Results

{date} UTC, `{command}`, seed {seed}, {machine}.

{tables}
"""


def write_results(
    path: Path, tallies: list[tuple[Kind, Tally]], *, command: str, seed: int, machine: str
) -> None:
    """Write the page anew."""
    tables = "\n\n".join(_table(kind, tally) for kind, tally in tallies)
    text = TEXT.format(
        date=f"{datetime.now(UTC):%Y-%m-%d %H:%M}", command=command, seed=seed, machine=machine, tables=tables
    )
    path.write_text(text, encoding="utf-8")


def _table(kind: Kind, tally: Tally) -> str:
    lines = [WHAT[kind.name], "", "| figure | count |", "|---|---|"]
    for words, name in ROWS:
        value = getattr(tally, name)
        lines.append(f"| {words} | {len(value) if isinstance(value, list) else value} |")
    lines.append(f"| seconds it took | {tally.seconds:.0f} |")
    return "\n".join(lines)
