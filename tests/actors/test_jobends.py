"""What the end of a job's container means, by its evidence (F25)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET

from actors.jobends import LATE_MS, end_of, was_over
from actors.messages import events as e
from actors.messages.times import time_text
from actors.state.workloads import Job
from adapters.runtime.port import Exit

NOW_MS = 1_796_000_000_000
CEILING = 4 << 30


def job(*, ceiling: int | None = CEILING) -> Job:
    made = Job("job-1", "h", "image", None, None, None, ceiling is not None, "run", "c", "t")
    made.host_memory_bytes = ceiling
    return made


def end(*, ceiling: int | None = CEILING, **ended: Any) -> e.JobFinished | e.JobFailed:
    given = {"code": 0, "output": ("last",), **ended}
    return end_of(job(ceiling=ceiling), Exit(**given), NOW_MS)


@pytest.mark.parametrize("code", [0, 1, 2, 126, 127, 139, 143, 255])
def test_a_program_that_ends_by_itself_has_finished_whatever_its_code(code: int) -> None:
    """Also 127: a shell that did not find something says that as well, and ran."""
    assert end(code=code) == e.JobFinished("job-1", code, ("last",))


def test_a_kill_without_evidence_is_told_with_its_code_and_a_note() -> None:
    fact = end(code=137)
    assert isinstance(fact, e.JobFinished)
    assert fact.exit_code == 137
    assert "nothing shows that it was for want of memory" in str(fact.note)


def test_a_lack_of_memory_by_its_evidence_names_the_ceiling() -> None:
    fact = end(code=137, out_of_memory=True)
    assert isinstance(fact, e.JobFailed)
    assert (fact.code, fact.exit_code, fact.output) == ("OUT_OF_MEMORY", 137, ("last",))
    assert str(CEILING) in fact.reason
    assert "BEST_PEER_JOB_MEMORY" in fact.fix


def test_a_job_without_a_ceiling_lacked_the_machines_memory() -> None:
    fact = end(code=137, out_of_memory=True, ceiling=None)
    assert isinstance(fact, e.JobFailed)
    assert "no ceiling of its own" in fact.reason
    assert "BEST_PEER_JOB_MEMORY" not in fact.fix


@pytest.mark.parametrize("code", [0, 1, 137])
def test_a_process_that_was_ended_is_a_note_and_the_program_finished(code: int) -> None:
    """The engine's mark alone is no end of the job (spike: a child killed under a shell, exit 0)."""
    fact = end(code=code, lost_process=True)
    assert isinstance(fact, e.JobFinished)
    assert fact.exit_code == code
    assert str(CEILING) in str(fact.note)
    assert "ceiling" not in str(end(code=code, lost_process=True, ceiling=None))


def test_a_command_that_is_not_there_never_ran() -> None:
    fact = end(code=127, not_found=True)
    assert isinstance(fact, e.JobFailed)
    assert (fact.code, fact.exit_code) == ("COMMAND_NOT_FOUND", 127)


def test_an_end_with_its_engine_is_an_interruption_with_what_is_known() -> None:
    at = time_text(NOW_MS - 60_000)
    fact = end(code=143, interrupted=True, ended_at=at)
    assert isinstance(fact, e.JobFailed)
    assert (fact.code, fact.exit_code, fact.ended_at) == ("INTERRUPTED", 143, at)


def test_an_end_that_nobody_knows_is_an_interruption_too() -> None:
    fact = end(code=None, output=())
    assert isinstance(fact, e.JobFailed)
    assert (fact.code, fact.exit_code, fact.output) == ("INTERRUPTED", None, ())
    assert fact.fix


@pytest.mark.parametrize("ended_at", ["2026-11-29T10:00:00.123456789Z", "2026-11-29T11:00:00.123+01:00"])
def test_an_end_long_before_it_is_told_says_when_it_was(ended_at: str) -> None:
    """In the form that every time on the wire has."""
    fact = end(ended_at=ended_at)
    assert fact.ended_at == "2026-11-29T10:00:00.123Z"


def test_an_end_just_now_needs_no_time_of_its_own() -> None:
    assert end(ended_at=time_text(NOW_MS - LATE_MS)).ended_at is UNSET
    assert end(ended_at=None).ended_at is UNSET


def test_a_job_was_over_before_its_stop_where_its_end_is_known_to_lie_before() -> None:
    at = time_text(NOW_MS)
    assert was_over(Exit(0, ended_at=at), NOW_MS + 1)
    assert not was_over(Exit(0, ended_at=at), NOW_MS)
    assert not was_over(Exit(0), NOW_MS)
