"""A run's results, for the terminal and for `docs/benchmarks.md`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from tests.support.bench.figures import Line

_HEAD = """\
# Benchmarks

Made by `scripts/bench --write`; run it to measure your own machine (some thirty minutes, no network;
root, for the row with containers). Ours and its baseline are measured in one run, in turn, a few tenths of a
second to a few seconds each, over and over. What stands here are medians, and ratios taken round by round
with the quartiles that half of the rounds lie between: absolute figures are this machine's, the ratios are
the product's. `scripts/bench --help` lists the rows, `tests/support/bench/` is how they are measured.

"""
_METHOD = """
## How

- **Same server.** The baseline of a request is a Quart view that does nothing, in the same process behind the
  same `peer.door.server`; the client is another process with raw sockets kept alive.
- **Commands** are prompts of some 800 bytes, each with a new id. In the line with a goal the fake engine
  holds the prompts while a round is measured, so that a POST is counted and not what follows from it; the
  line after it counts that too.
- **Facts** for pages and restarts are made of whole lifecycles: deployments from start to end, prompts
  answered with some hundred bytes, forty tenants, thirty days. The short log is one block of a thousand
  facts, the long one a thousand such blocks.
- **Streams** are told facts in batches, each batch when all streams have got the one before. Memory is what
  is resident and anonymous, after a collection.
- **Prompts** go to one real llama.cpp server with a random model of half a megabyte, started by a deployment
  of the peer; the direct client asks it with the same key, on its own connections.
- **Containers** are those of a Docker engine that is made for the row, of images that it holds, pinned by
  digest. The bare client asks for the same containers, by httpx over the same socket; what it does not do is
  to keep the command, to look whether the image is there, to follow what the engine tells, and to tell
  anybody. An end is told before its container is removed, in both; each round begins when all are gone.
- **Crowd** is two peers side by side on the fake runtime, one with a thousand keys and two hundred workloads,
  half of them jobs. What is compared is the processor time of each request, all that follows from it
  included; a scrape of everything by each of its samples, since it has more of them.
- **Start** is the installed program with the fake runtime and a data folder that has been used before.
"""


@attrs.frozen
class Results:
    """What a run gave.

    Args:
        where: lines about the machine and the moment.
        command: what was run.
        rows: the lines of each row, by its name, in order.
        failures: why a row could not be measured, by its name.
    """

    where: Sequence[str]
    command: str
    rows: Mapping[str, Sequence[Line]]
    failures: Mapping[str, str]

    @property
    def lines(self) -> list[Line]:
        """All lines in order."""
        return [line for lines in self.rows.values() for line in lines]

    @property
    def missed(self) -> list[Line]:
        """The lines whose goal was not met."""
        return [line for line in self.lines if line.is_met is False]


def terminal_text(results: Results) -> str:
    """The table for people at a terminal: two lines each, since words do not fit a column."""
    text = [*results.where, ""]
    for name, lines in results.rows.items():
        text.append(name)
        for line in lines:
            against = f", baseline {line.baseline}" if line.baseline else ""
            text.append(f"  {line.what}")
            text.append(
                f"    {_VERDICTS[line.is_met]:7} {line.shown}{_goal_text(line)}; {line.ours}{against}"
            )
    for name, why in results.failures.items():
        text.append(f"{name}: could not be measured: {why}")
    return "\n".join(text)


def markdown_text(results: Results) -> str:
    """The same as a document."""
    text = _HEAD + "".join(f"- {line}\n" for line in results.where)
    text += f"- command: `{results.command}`\n\n"
    text += "| what | ours | baseline | figure | goal | met |\n| --- | --- | --- | --- | --- | --- |\n"
    for line in results.lines:
        goal = "" if line.goal is None else line.goal.text()
        cells = (line.what, line.ours, line.baseline, line.shown, goal, _MET[line.is_met])
        text += f"| {' | '.join(cells)} |\n"
    text += "\n## Missed, and why\n\n"
    text += "".join(
        f"- **{line.what}** ({line.shown}): {line.cause or _UNKNOWN}\n" for line in results.missed
    )
    text += "".join(f"- **{name}** could not be measured: {why}\n" for name, why in results.failures.items())
    if not results.missed and not results.failures:
        text += "Nothing.\n"
    return text + _METHOD


_VERDICTS = {True: "met", False: "MISSED", None: ""}
_MET = {True: "yes", False: "**no**", None: ""}
_UNKNOWN = "no cause is known beyond the noise of the machine"


def _goal_text(line: Line) -> str:
    return "" if line.goal is None else f" (goal {line.goal.text()})"
