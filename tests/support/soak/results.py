"""What a soak came to, and how it is put into the documentation: each kind's own part of the page anew."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import attrs

from tests.support.soak.containers.cases import MOMENTS, VICTIMS, WORKS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.soak.containers.run import Kills
    from tests.support.soak.run import Tally

WHAT = {
    "fake": "The program with `BEST_PEER_RUNTIME=fake`: all of it but the engines, which its data folder "
    "remembers as running.",
    "real": "The program with `BEST_PEER_RUNTIME=process`: llama.cpp's server serving a tiny random model.",
    "containers": "The program with `BEST_PEER_RUNTIME=docker`, on an engine of its own: how often who was "
    "killed, under what and when.",
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

## The peer, its container engine and its registry, at each phase

One deploy or one job at a time, and one `kill -9`: of the peer, of dockerd, of the registry. The moments are
exact: a wire between the peer and the engine, and one between the engine and the registry, hold the call that
the phase stands for until the victim is dead.

| phase | when it is killed |
|---|---|
| start of pull | the engine has asked the registry for the image's manifest and has no answer |
| mid-pull | a part of a layer has been sent |
| created | the container is there, and the engine has not been told to start it |
| starting | the container was started, and the peer has no answer |
| running | the job has started; the deployment is ready |
| exiting, ended | it has ended by itself and the peer has not heard of it |
| exiting, stopping | it was told to stop, and the peer has no answer |
| exiting, removing | it has ended, and the peer's order to remove the container is on its way |

The victim is started again, a quarter of the peers only to be killed once more in that start; a registry in
the end, half of those under a pull at once. Half of the engines leave their containers running when they end
(`--live-restore`), half end them. Then:

- The work comes to the end that is right for the case, under its own code where it fails: a peer's kill
  changes nothing, an engine's fails or ends only what it took with it, a registry's only what it had not
  served yet. A deployment that is ready answers a prompt and is undeployed.
- The history is right as above, no memory is promised any more, and no work is held.
- A job's program, which reports each of its runs over the network, ran once where it ran, and never twice.
- The engine has no container, no volume, no network of anybody's, and nothing of a container runs. One thing
  may be left, which is counted: of a container that ends while dockerd is killed, Docker 20.10 may forget
  containerd's shim, which stays until containerd's end. Docker's API tells nothing of it.

Run it alone with `scripts/testbed scripts/soak --runs 0 --real 0`. Outside of a bed it is left out.

## Results

{parts}
"""


@attrs.define
class Results:
    """What came of each kind that was run.

    Args:
        command, seed, machine: how it was run, on what.
    """

    command: str
    seed: int
    machine: str
    of_peers: dict[str, Tally] = attrs.field(factory=dict)
    of_containers: Kills | None = None

    @property
    def problems(self) -> list[str]:
        """Everything that was wrong."""
        found = [problem for tally in self.of_peers.values() for problem in tally.problems]
        return found + (self.of_containers.problems if self.of_containers else [])

    def write(self, path: Path) -> None:
        """Write the page anew; the results of kinds that were not run stay as they are."""
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        parts = {name: found for name in WHAT if (found := _part_of(before, name))}
        for name, tally in self.of_peers.items():
            parts[name] = self._part(name, _table(tally))
        if self.of_containers is not None:
            parts["containers"] = self._part("containers", _matrix(self.of_containers))
        text = "\n\n".join(parts[name] for name in WHAT if name in parts)
        path.write_text(TEXT.format(parts=text), encoding="utf-8")

    def _part(self, name: str, table: str) -> str:
        how = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, `{self.command}`, seed {self.seed}, {self.machine}."
        return f"<!-- {name} -->\n{WHAT[name]}\n\n{how}\n\n{table}\n<!-- end -->"


def _part_of(page: str, name: str) -> str | None:
    found = re.search(rf"<!-- {name} -->.*?<!-- end -->", page, re.DOTALL)
    return None if found is None else found.group()


def _table(tally: Tally) -> str:
    lines = ["| figure | count |", "|---|---|"]
    for words, name in ROWS:
        value = getattr(tally, name)
        lines.append(f"| {words} | {len(value) if isinstance(value, list) else value} |")
    lines.append(f"| seconds it took | {tally.seconds:.0f} |")
    return "\n".join(lines)


def _matrix(kills: Kills) -> str:
    columns = [(victim, work) for victim in VICTIMS for work in WORKS]
    lines = [
        "| killed | " + " | ".join(f"{victim}, {work}" for victim, work in columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for moment in MOMENTS:
        counts = [str(kills.made[moment, victim, work]) for victim, work in columns]
        lines.append(f"| {moment} | " + " | ".join(counts) + " |")
    ends = ", ".join(f"{kind} {count}" for kind, count in sorted(kills.ends.items()))
    rows = {
        "kills in all": sum(kills.made.values()),
        "peers killed again in the start that came after": kills.again,
        "what the work came to": ends,
        "jobs' programs that ran, none of them twice": kills.runs,
        "facts told": kills.facts,
        "shims of ended containers that a killed dockerd knew no more": kills.forgotten,
        "problems": len(kills.problems),
        "seconds it took": f"{kills.seconds:.0f}",
    }
    more = [f"| {words} | {value} |" for words, value in rows.items()]
    return "\n".join([*lines, "", "| figure | count |", "|---|---|", *more])
