"""The command line of the agent: ``python -m acceptance MANIFEST``.

Exit codes: 0 the question was answered and nothing is left; 1 the service refused, failed or contradicted
itself; 2 there was no service to talk to, or the call was wrong.
"""

import argparse
import io
import re
import signal
import sys
from pathlib import Path

from acceptance.agent import Agent, Order, Outcome
from acceptance.display import Display
from acceptance.filling import Wishes
from acceptance.names import Names
from acceptance.problems import Problem, Unreachable
from acceptance.transcript import Transcript
from acceptance.wire import Wire

SENTENCE = "serve a model and ask it a question"
CONNECTION_NAME = "manifest-alone"
QUESTION = "In one sentence: what is a tide?"
ABOUT = """\
This agent was given one address, one sentence and one question. It shares no code with the service and knows
none of its names: it finds the recipe, the documents and the fields by itself. What it asked and what it was
answered stands below. Long texts are cut, secrets are left out, and what differs from run to run (the
address, ids, times) is written as a name, so that two transcripts can be compared."""
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
CONNECTION = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


def main(arguments: list[str] | None = None) -> int:
    """Run once; the exit code."""
    order, trust, path = read_arguments(arguments)
    names = Names()
    names.call(order.manifest.partition("/.well-known/")[0].rstrip("/"), "https://the-service")
    transcript, display = Transcript(names), Display(sys.stderr, sys.stdout, names)
    transcript.title(f"“{order.sentence}”, from the manifest alone")
    transcript.say(ABOUT)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # A stop asked for is a person breaking off: what was made is taken down first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        wire = Wire(transcript, trust)
        try:
            outcome = Agent(wire, transcript, display).run(order)
        finally:
            wire.close()
        summarise(transcript, outcome)
    except Problem as problem:
        transcript.say(f"**The run ended here: {problem}**")
        for line in (str(problem), *getattr(problem, "__notes__", ())):
            print(f"error: {names.hide(line)}", file=sys.stderr)
        return problem.ends_with
    except KeyboardInterrupt:
        print("broken off", file=sys.stderr)
        return 128 + signal.SIGINT
    finally:
        if path is not None:
            keep(transcript, path)
    return 0


def read_arguments(arguments: list[str] | None) -> tuple[Order, Path | None, Path | None]:
    """What the person said; ends the program with 2 where that makes no sense."""
    parser = argparse.ArgumentParser(
        prog="python -m acceptance",
        description="Do what a sentence asks at a service of which nothing is known but its manifest.",
    )
    parser.add_argument("manifest", help="the manifest's address, or the service's")
    parser.add_argument("--say", default=SENTENCE, metavar="SENTENCE", help="what to do (%(default)s)")
    parser.add_argument("--ask", default=QUESTION, metavar="QUESTION", help="what to ask (%(default)s)")
    parser.add_argument("--prefer", default="", metavar="WORD", help="choose what is called like this")
    parser.add_argument(
        "--with",
        dest="numbers",
        action="append",
        default=[],
        type=_number,
        metavar="WORD=NUMBER",
        help="a number to go by, by what it is of: memory=512M, tokens=120, temperature=0",
    )
    parser.add_argument(
        "--connection", default=CONNECTION_NAME, type=_connection, help="the sign-in's name (%(default)s)"
    )
    parser.add_argument(
        "--approve-with",
        metavar="COMMAND",
        help="a command that approves the sign-in, with {code} in it; otherwise a person approves",
    )
    parser.add_argument(
        "--trust", type=Path, metavar="PEM", help="a certificate to trust besides the system's"
    )
    parser.add_argument("--transcript", type=Path, metavar="FILE", help="where the transcript is written")
    parser.add_argument(
        "--patience", type=float, default=900.0, metavar="SECONDS", help="for one command (%(default)s)"
    )
    parser.add_argument(
        "--confirmed", action="store_true", help="the person agrees to commands that must be confirmed"
    )
    given = parser.parse_args(arguments)
    order = Order(
        manifest=given.manifest,
        sentence=given.say,
        wishes=Wishes(given.ask, given.prefer, dict(given.numbers)),
        connection=given.connection,
        approve_with=given.approve_with,
        patience=given.patience,
        confirmed=given.confirmed,
    )
    return order, given.trust, given.transcript


def summarise(transcript: Transcript, outcome: Outcome) -> None:
    """The end of the transcript: what was done, and how long each thing took."""
    transcript.section("Summary")
    transcript.table(
        ("command", "seconds", "facts", "completed by"),
        [
            (f"`{taken.step.name}`", f"{taken.seconds:.1f}", str(len(taken.facts)), taken.facts[-1].kind)
            for taken in outcome.taken
        ],
    )
    transcript.say(f"Asked: “{outcome.question}”")
    transcript.say("Answered:")
    transcript.quote(outcome.answer)
    transcript.say(", ".join(f"{name} {value}" for name, value in outcome.counts.items()))
    transcript.say("Everything above was found from the manifest's address and the public protocol.")


def keep(transcript: Transcript, path: Path) -> None:
    """Write the transcript; a failure is told and changes no exit code that is already decided."""
    try:
        transcript.write(path)
    except Unreachable as problem:
        print(f"error: {problem}", file=sys.stderr)


def _number(text: str) -> tuple[str, float]:
    word, _, amount = text.partition("=")
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)", amount)
    if not word or found is None:
        raise argparse.ArgumentTypeError(f"expected a word and a number, such as memory=512M; got {text}")
    return word.lower(), float(found[1]) * UNITS[found[2]]


def _connection(text: str) -> str:
    if not CONNECTION.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"expected one word of at most 64 lower-case letters, digits and hyphens; got {text}"
        )
    return text


if __name__ == "__main__":
    sys.exit(main())
