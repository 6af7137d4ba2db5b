"""One fact as a line for the owner: what happened, never what was asked or answered (F23, F35).

The log holds conversations, and whose they are is their holders' business. So of a fact about a prompt only
what is named here is shown, of any fact no field that carries a conversation; their lengths stand instead.
"""

from __future__ import annotations

import json
import textwrap
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from peer.cli.show import local_time, safe, short_id
from peer.units import describe_size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actors.messages.envelope import Head

Data = dict[str, Any]

MAX_WORDS: Final = 20_000
"""Characters of a fact's own words: more than one is told with, for what is to be done must not be cut."""
LEAST_WRAPPED: Final = 24
"""Columns below which words do not stand beside the rest of their line but begin at a small indent."""
INDENT: Final = 4
MOST_OUTPUT_LINES: Final = 20
"""Lines of output that a fact has at most: as many may be the end of more."""
MAX_FIELDS: Final = 6
"""Fields shown of a fact that this release does not know."""

_CONTENT: Final = frozenset({"content", "messages"})
_PROMPTS: Final = "Prompt"
_SAFE_OF_PROMPTS: Final = frozenset(
    {
        "deployment",
        "model",
        "prompt_tokens",
        "completion_tokens",
        "finish_reason",
        "code",
        "fix",
        "cloud",
        "peer",
        "device",
        "forgotten",
    }
)
"""What a prompt's facts may show. A reason may not: an engine may repeat there what it was asked."""


def without_content(kind: str, data: Data) -> Data:
    """A fact's data with every field that may carry a conversation replaced by its length in characters."""
    is_prompt = kind.startswith(_PROMPTS)
    shown: Data = {}
    for name, value in data.items():
        if name in _CONTENT or (is_prompt and name not in _SAFE_OF_PROMPTS):
            text = value if isinstance(value, str) else json.dumps(value)
            shown[f"{name}_length"] = len(text)
        else:
            shown[name] = value
    return shown


def json_line(envelope: Data) -> str:
    """The whole fact, without content, as JSON on one line of ASCII."""
    data = envelope.get("data")
    shown = without_content(str(envelope.get("type")), data) if isinstance(data, dict) else None
    return json.dumps({**envelope, "data": shown}, separators=(",", ":"))


def person_line(head: Head, data: Data, width: int | None = None) -> str:
    """The fact as a person reads it: local time, type, workload, whose it is, what matters.

    Args:
        head, data: the fact.
        width: columns of the terminal, on which long words go on below; None is one line, however long.
    """
    shown = without_content(head.type, data)
    workload = shown.pop("deployment", None) or shown.pop("job", None)
    words = _words(head.type, shown)
    holder = "" if head.holder is None else short_id(head.holder)
    line = f"{_time(head.time)}  {safe(head.type, 40):<18}  {short_id(str(workload or '-')):<12}"
    start, words = f"{line}  {holder or ' ' * 10}  ", safe(words, MAX_WORDS)
    if width is None or len(start) + len(words) <= width:
        return f"{start}{words}".rstrip()
    # Words that do not fit at all, such as a digest, are not broken: they could not be copied.
    indent = len(start) if width - len(start) >= LEAST_WRAPPED else INDENT
    wrapped = textwrap.wrap(
        words,
        max(width, INDENT + LEAST_WRAPPED),
        initial_indent=" " * indent,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    if indent == len(start):
        wrapped[0] = f"{start}{wrapped[0].lstrip()}"
        return "\n".join(wrapped)
    return "\n".join([start.rstrip(), *wrapped])


def _time(text: str) -> str:
    try:
        return local_time(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return f"{safe(text, 19):<19}"


def _words(kind: str, data: Data) -> str:
    tell = _TOLD.get(kind)
    if tell is not None:
        try:
            return tell(data)
        except (KeyError, TypeError, ValueError):
            pass  # another version's fact of that name: as one that is not known
    named = [f"{name}={value}" for name, value in data.items() if isinstance(value, str | int | float)]
    return " ".join(named[:MAX_FIELDS])


def _pulling(data: Data) -> str:
    percent, fetched = data.get("progress_pct"), data.get("fetched_bytes")
    known = [] if percent is None else [f"{percent} %"]
    known += [] if fetched is None else [describe_size(fetched)]
    if percent == 100:  # also of one that was held, of which nothing was fetched
        return f"{data['image']} is whole"
    return f"{data['image']} is being fetched" + (f", {', '.join(known)} so far" if known else "")


def _pulled(data: Data) -> str:
    return f"{data['image']} " + ("was here already" if data["held"] else "is here")


def _started(data: Data) -> str:
    size = describe_size(data["memory_bytes"])
    return f"{data['model']} by {data['engine']} on {data['device']}, {size} promised"


def _loading(data: Data) -> str:
    percent = data.get("progress_pct")
    return "loads" if percent is None else f"{percent} % loaded"


def _ready(data: Data) -> str:
    took = data.get("load_ms")
    after = "" if took is None else f", loaded in {took / 1000:.1f} s"
    context = data.get("context_tokens")
    more = "" if context is None else f", context {context}"
    note = data.get("note")
    return f"{data['model']} answers{after}{more}" + (f"; {note}" if note else "")


def _ended(data: Data) -> str:
    code = data.get("exit_code")
    return _failure(data) + ("" if code is None else f" (exit code {code})")


def _job_started(data: Data) -> str:
    size = data.get("memory_bytes")
    promised = "" if size is None else f", {describe_size(size)} promised"
    device = data.get("device")
    where = "without a device" if device is None else f"on {device}"
    return f"{data['image']} {where}{promised}, " + ("in the closed box" if data["boxed"] else "its box open")


def _job_finished(data: Data) -> str:
    note = data.get("note")
    return f"exit code {data['exit_code']}, {_lines(data)}" + (f"; {note}" if note else "")


def _job_stopped(data: Data) -> str:
    reason = data.get("reason")
    return f"stopped, {_lines(data)}" + (f"; {reason}" if reason else "")


def _lines(data: Data) -> str:
    """How much is told of what a job printed; what it says is its holder's business.

    The fact has its last lines alone, and does not say how many there were before.
    """
    count = len(data.get("output", ()))
    if count >= MOST_OUTPUT_LINES:
        return f"the last {count} lines of its output"
    return f"{count} {'line' if count == 1 else 'lines'} of output"


def _answered(data: Data) -> str:
    asked, given = data["prompt_tokens"], data["completion_tokens"]
    tokens = f"{_count(asked)} tokens asked, {_count(given)} answered"
    return f"{tokens}, {data['content_length']} characters"


def _count(number: int | None) -> str:
    return "unknown" if number is None else str(number)


def _failure(data: Data) -> str:
    parts = [str(data[name]) for name in ("code", "reason") if data.get(name)]
    fix = data.get("fix")
    return ": ".join(parts) + (f"; {fix}" if fix else "")


def _command(data: Data) -> str:
    return f"{data['command_type']} failed, {_failure(data)}"


def _held(data: Data) -> str:
    until = data.get("until")
    end = "until released" if until is None else f"until {_time(until)}"
    reason = data.get("reason")
    why = "" if reason is None else f" ({reason})"
    return f"{data['device']} is held {end}{why}; what runs there " + (
        "ends" if data["ends_work"] else "runs on"
    )


def _released(data: Data) -> str:
    return f"{data['device']} is released" + (", its time has come" if data["cause"] == "ended" else "")


def _name(data: Data) -> str:
    return f"{data['name']} gave its key back"


_TOLD: Final[Mapping[str, Callable[[Data], str]]] = {
    "ImagePulling": _pulling,
    "ImagePulled": _pulled,
    "DeploymentStarted": _started,
    "WeightsLoading": _loading,
    "DeploymentReady": _ready,
    "DeploymentFailed": _ended,
    "DeploymentEnded": _ended,
    "OutOfMemory": _ended,
    "Undeployed": lambda _: "ended by command",
    "JobStarted": _job_started,
    "JobFinished": _job_finished,
    "JobFailed": _ended,
    "JobStopped": _job_stopped,
    "PromptAnswered": _answered,
    "PromptFailed": _failure,
    "CommandFailed": _command,
    "AgentRevoked": _name,
    "DeviceHeldV1": _held,
    "DeviceReleasedV1": _released,
}
