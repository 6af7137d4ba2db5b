"""How a container ended, by what its engine kept of it (F19, F25)."""

import re
import signal
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import attrs

from adapters.runtime.output import split_lines
from adapters.runtime.port import Exit

KILLED: Final = 137
LOST: Final = 255
"""What an engine writes for a container whose end it did not see: its machine went down under it."""
_INIT_FAILED: Final = re.compile(r"\[FATAL tini \(\d+\)\] exec .* failed: .*")
_NANOSECONDS: Final = re.compile(r"(\.\d{6})\d+")


@attrs.frozen
class Asked:
    """What this peer asked a container to do."""

    to_end: bool = False
    was_killed: bool = False


NOTHING: Final = Asked()


def exit_of(
    state: Mapping[str, Any],
    output: bytes,
    *,
    asked: Asked = NOTHING,
    went_down: bool = False,
    told_of_memory: bool = False,
    booted: datetime | None = None,
) -> Exit:
    """The end of an exited container.

    Args:
        state: `State` of what the engine tells of it.
        output: the end of what it wrote.
        asked: what this peer asked it to do: a signal is then no sign of anything else.
        went_down: its engine went down, or was started again, about when it ended.
        told_of_memory: the engine told that it ran out of memory, marked as that or not.
        booted: when the engine's machine was started last, None where that is not known.
    """
    before, lines = split_lines(output)
    if _was_lost(state, booted):
        return Exit(None, lines, interrupted=True, before=before)
    ended = moment(state.get("FinishedAt"))
    code = state.get("ExitCode")
    # The mark alone is no evidence: it is set as well when a child was ended and the program went on.
    lacked_memory = told_of_memory or is_marked(state)
    out_of_memory = lacked_memory and code == KILLED and not asked.was_killed
    return Exit(
        code=code if isinstance(code, int) else None,
        output=lines,
        out_of_memory=out_of_memory,
        lost_process=lacked_memory and not out_of_memory,
        # Init says so before anything else could, so it is all there is.
        not_found=code in (126, 127) and len(lines) == 1 and _INIT_FAILED.fullmatch(lines[0]) is not None,
        interrupted=went_down and not out_of_memory and not asked.to_end,
        ended_at=None if ended is None else stamp(ended),
        before=before,
    )


def is_marked(state: Mapping[str, Any]) -> bool:
    """Whether the engine marked a container as one that ran out of memory."""
    return state.get("OOMKilled") is True


def is_by_signal(state: Mapping[str, Any], stop_signal: str) -> bool:
    """Whether a container ended as one does that its engine ends: by its stop signal, or killed."""
    return state.get("ExitCode") in (KILLED, 128 + _number(stop_signal))


def was_running_at_boot(state: Mapping[str, Any], booted: datetime | None) -> bool:
    """Whether a container was started before its engine's machine was."""
    started = moment(state.get("StartedAt"))
    return started is not None and booted is not None and started < booted


def _number(name: str) -> int:
    if name.isdecimal():
        return int(name)
    try:
        return signal.Signals[f"SIG{name.upper().removeprefix('SIG')}"].value
    except KeyError:
        return signal.SIGTERM


def moment(text: object) -> datetime | None:
    """A time as the engine writes it; None for the year one, which is its word for never."""
    if not isinstance(text, str):
        return None
    try:
        when = datetime.fromisoformat(_NANOSECONDS.sub(r"\1", text))
    except ValueError:
        return None
    return when.astimezone(UTC) if when.year > 1 and when.tzinfo is not None else None


def stamp(when: datetime) -> str:
    """A time as facts carry it."""
    return f"{when.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def _was_lost(state: Mapping[str, Any], booted: datetime | None) -> bool:
    return state.get("ExitCode") == LOST and was_running_at_boot(state, booted)
