"""Prompts through the door, from the command to the answer's fact, against asking the engine itself.

One engine for both: a real llama.cpp server with a tiny model, that the peer started for a deployment.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import attrs

from adapters.runtime.port import API_KEY, record_path
from adapters.runtime.record import read_record
from adapters.runtime.spawn import secret_path
from tests.support.bench.bench import Bench, Served
from tests.support.bench.child import Child
from tests.support.bench.figures import (
    Goal,
    Line,
    NotMeasured,
    Pairs,
    alternate,
    milliseconds,
    per_second,
    ratio_line,
)
from tests.support.tinymodel import write_tiny_model

MODEL = "tiny"
TOKENS = 128
_QUESTION = "Name three rivers of Europe."
_MIB = 1 << 20
_CAUSES = {
    1: (
        "a command and its answer each wait for a sync and its thread, and the work passes between four "
        "processes: on a machine with fewer free cores each of them waits for one"
    ),
    16: "the door, the engine and the client share the machine's cores",
}


@attrs.frozen
class _Engine:
    """Where the deployment's engine listens, and its key."""

    port: int
    key: str


@attrs.frozen
class _Run:
    """Prompts a second, the median seconds of one, and the peer's processor seconds for each."""

    rate: float
    median: float
    cpu: float = 0.0


def measure(bench: Bench) -> list[Line]:
    """One prompt at a time, then sixteen."""
    home = bench.folder("prompts")
    models = home / "models"
    models.mkdir()
    write_tiny_model(models / f"{MODEL}.gguf")
    data = home / "data"
    settings = {"BEST_PEER_GPU": "none", "BEST_PEER_RUNTIME": "process", "BEST_PEER_MODELS": str(models)}
    with bench.served(data, **settings) as served, bench.client() as client:
        door = served.door
        deployment = door.deploy(MODEL, 300 * _MIB)
        try:
            return _lines(bench, client, served, deployment, _engine(data, deployment))
        finally:
            # Engines outlive their peer: this one is ended before the peer is.
            ended = door.send("UndeployModel", {"deployment": deployment})
            door.wait_for(ended, "Undeployed")


def _engine(data: Path, deployment: str) -> _Engine:
    folder = record_path(data, deployment)
    record = read_record(folder)
    if record is None:
        raise NotMeasured(f"{folder} holds no record of the engine")
    return _Engine(record.port, secret_path(folder, API_KEY).read_text().strip())


def _lines(bench: Bench, client: Child, served: Served, deployment: str, engine: _Engine) -> list[Line]:
    door = served.door
    chat = {
        "messages": [{"role": "user", "content": _QUESTION}],
        "max_tokens": TOKENS,
        "temperature": 0.0,
    }
    direct = _direct_question(engine, {"model": MODEL, "stream": False, **chat})
    command = door.request("POST", "/commands", door.command("Prompt", {"deployment": deployment, **chat}))
    lines = []
    for users in (1, 16):
        bench.say(f"prompts, {users} at once")
        count = bench.pick(60 if users == 1 else 160, 16)
        base, ours = alternate(
            bench.pick(9, 2),
            partial(_direct, client, engine, direct, users, count),
            partial(_through_door, client, served, command.decode(), users, count),
        )
        if users == 1:
            times = Pairs(tuple(o.median for o in ours), tuple(b.median for b in base))
            more = times.difference
            lines.append(
                Line(
                    f"a prompt of {TOKENS} tokens, from the command to its answer's fact on the stream, "
                    "against asking the engine directly, one at a time",
                    milliseconds(median(times.ours)),
                    milliseconds(median(times.baseline)),
                    more.middle * 1e3,
                    f"{more.middle * 1e3:.2f} ms more ({more.low * 1e3:.2f} to {more.high * 1e3:.2f})",
                    Goal("at most", 3, "ms more"),
                    _CAUSES[users],
                )
            )
        else:
            spent = median(o.cpu for o in ours)
            rates = Pairs(tuple(o.rate for o in ours), tuple(b.rate for b in base))
            lines.append(
                ratio_line(
                    f"the same, {users} at once: prompts a second; {milliseconds(spent)} of processor time "
                    "each in the peer",
                    rates,
                    per_second,
                    Goal("at least", 0.95),
                    cause=_CAUSES[users],
                )
            )
    return lines


def _direct_question(engine: _Engine, chat: dict[str, Any]) -> str:
    body = json.dumps(chat)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{engine.port}\r\n"
    head += f"Authorization: Bearer {engine.key}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body.encode())}\r\n\r\n{body}"


def _direct(client: Child, engine: _Engine, question: str, users: int, count: int) -> _Run:
    result = client.ask(
        do="load",
        port=engine.port,
        connections=users,
        questions=[question],
        status=200,
        count=count,
        within=300,
    )
    return _Run(result["count"] / result["seconds"], result["median"])


def _through_door(client: Child, served: Served, question: str, users: int, count: int) -> _Run:
    before = served.child.cpu()
    result = client.ask(
        do="prompts",
        port=served.door.port,
        users=users,
        count=count,
        question=question,
        stream=served.door.stream("?type=PromptAnswered"),
        fact="PromptAnswered",
        within=300,
    )
    cpu = (served.child.cpu() - before) / count
    return _Run(result["count"] / result["seconds"], result["median"], cpu)
