"""A validated, durable command against a POST that does nothing, on the same server."""

from __future__ import annotations

from functools import partial

from tests.support.bench.bench import Bench, Served
from tests.support.bench.child import Child
from tests.support.bench.figures import Goal, Line, alternate
from tests.support.bench.rates import Rate, load, rate_line
from tests.support.bench.served import NOTHING

_WORDS = "Name three rivers of Europe, say where each rises and which sea it reaches, in one sentence each. "
_CAUSES = {
    16: "beside the request, a command is validated, written, and given a task that carries it out",
    1: "alone, a command waits for its own sync and for the thread that does it, and nothing fills that time",
}


def measure(bench: Bench) -> list[Line]:
    """At sixteen connections and at one; and with the answers, so that all of a prompt's work is seen."""
    lines = []
    with bench.served() as served, bench.client() as client:
        door = served.door
        data = {"deployment": door.deploy(), "messages": [{"role": "user", "content": _WORDS * 2}]}
        body = door.command("Prompt", data)
        command = door.request("POST", "/commands", body)
        nothing = door.request("POST", NOTHING, body)
        for connections, goal in ((16, 0.85), (1, 0.45)):
            at = "at one connection" if connections == 1 else f"at {connections} connections"
            bench.say(f"commands {at}")
            post = partial(_post, bench, served, client, connections)
            base, ours, whole = alternate(
                bench.pick(31, 2),
                partial(post, nothing),
                partial(post, command, held=True),
                partial(post, command),
            )
            what = f"`POST /commands`, validated and durable, {at}"
            lines.append(rate_line(what, ours, base, Goal("at least", goal), cause=_CAUSES[connections]))
            what = f"the same while each prompt is carried out too and its answer told, {at}"
            lines.append(rate_line(what, whole, base, None))
    return lines


def _post(
    bench: Bench, served: Served, client: Child, connections: int, question: bytes, *, held: bool = False
) -> Rate:
    """One round; held prompts are answered only when it is over."""
    if held:
        served.child.ask(do="hold")
    rate = load(served, client, question, status=201, connections=connections, seconds=bench.pick(3, 2) / 10)
    served.child.ask(do="release")
    return rate
