"""What the end of a job's container means, as its one last fact (F25).

A program that ends by itself has finished, whatever its code. A job has failed when it could not run, or when
the machine broke it off; that is told by the evidence of what ran it and not by a code alone.
"""

from typing import Final

import attrs
from msgspec import UNSET, UnsetType

from actors.messages import events as e
from actors.messages.times import time_ms, time_text
from actors.state.workloads import Job
from adapters.runtime.port import Exit

LATE_MS: Final = 2000
"""An end that lies so far back when it is told says when it was."""

_KILLED: Final = 137
_AGAIN: Final = "run the job again"


def end_of(job: Job, ended: Exit, now_ms: int) -> e.JobFinished | e.JobFailed:
    """The last fact of a job that nobody stopped.

    Args:
        job: what the facts say of it.
        ended: how its container ended.
        now_ms: when it is told.
    """
    broken_off = _Failure(job.id, ended, _late(ended, now_ms))
    if ended.not_found:
        return broken_off.as_fact(
            "COMMAND_NOT_FOUND",
            "the image has no program of that name, or one that cannot be run",
            "send a command that the image has, by its path, or none to run the image's own",
        )
    if ended.out_of_memory:
        return broken_off.as_fact("OUT_OF_MEMORY", *_out_of_memory(job))
    if ended.interrupted:
        return broken_off.as_fact(
            "INTERRUPTED", "the container engine, or the machine with it, went down under it", _AGAIN
        )
    if ended.code is None:
        return broken_off.as_fact(
            "INTERRUPTED",
            "its container ended and nobody knows how: it was removed, most often",
            _AGAIN,
        )
    return e.JobFinished(
        job=job.id,
        exit_code=ended.code,
        output=ended.output,
        ended_at=_late(ended, now_ms),
        note=_note(job, ended),
    )


def was_over(ended: Exit, at_ms: int) -> bool:
    """Whether a container is known to have ended by itself before somebody asked for its end."""
    return ended.ended_at is not None and time_ms(ended.ended_at) < at_ms


@attrs.frozen
class _Failure:
    job: str
    ended: Exit
    ended_at: str | UnsetType

    def as_fact(self, code: str, reason: str, fix: str) -> e.JobFailed:
        return e.JobFailed(
            job=self.job,
            code=code,
            reason=reason,
            fix=fix,
            exit_code=self.ended.code,
            output=self.ended.output,
            ended_at=self.ended_at,
        )


def _out_of_memory(job: Job) -> tuple[str, str]:
    ceiling = job.host_memory_bytes
    if ceiling is None:
        return (
            "the machine had no more memory for it, and it is held to no ceiling of its own",
            "run it so that it uses less at once, or when less runs on this machine",
        )
    reason = (
        f"it reached its ceiling of {ceiling} bytes of host memory, in which its files in /tmp count and "
        "device memory does not: memory_bytes has no say in it"
    )
    return (
        reason,
        "run it so that it uses less at once; the owner of the machine may raise BEST_PEER_JOB_MEMORY",
    )


def _note(job: Job, ended: Exit) -> str | UnsetType:
    if ended.lost_process:
        ceiling = "" if job.host_memory_bytes is None else f" at its ceiling of {job.host_memory_bytes} bytes"
        return f"a process of it was ended for want of host memory{ceiling}; the program itself was not"
    if ended.code == _KILLED:
        return "this code is most often a kill (signal 9); nothing shows that it was for want of memory"
    return UNSET


def _late(ended: Exit, now_ms: int) -> str | UnsetType:
    if ended.ended_at is None:
        return UNSET
    at = time_ms(ended.ended_at)
    return time_text(at) if now_ms - at > LATE_MS else UNSET
