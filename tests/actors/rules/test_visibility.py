"""Who may read which fact (F5)."""

import pytest

from actors.messages import events as e
from actors.rules.visibility import HOLD_FACTS, SHARED_FACTS, WORKLOAD_FACTS, Reader

EVERY_FACT = sorted(c.__name__ for c in e.Event.__args__)
PRIVATE = {"PromptAnswered", "PromptFailed", "CommandFailed", "AgentRevoked"}

OWN, OTHER, ALL = Reader("h-own"), Reader("h-other"), Reader("h-other", sees_all=True)


@pytest.mark.parametrize("kind", [*EVERY_FACT, "FromTheFuture"])
def test_each_reader_reads_what_is_its_to_read(kind: str) -> None:
    """Never another holder's prompts, answers or failures; an unknown fact is its holder's alone."""
    assert OWN.may_read("h-own", kind)
    assert Reader("h-own", sees_all=True).may_read("h-own", kind)
    assert not OTHER.may_read("h-own", kind)
    assert ALL.may_read("h-own", kind) is (kind in SHARED_FACTS)


@pytest.mark.parametrize("kind", EVERY_FACT)
def test_the_machines_own_facts_are_read_by_all_keys_alone(kind: str) -> None:
    assert not Reader("h-own").may_read(None, kind)
    assert Reader("h-own", sees_all=True).may_read(None, kind) is (kind in SHARED_FACTS)


def test_every_fact_is_about_a_workload_or_a_hold_or_private() -> None:
    """A new fact must be decided on here."""
    assert set(EVERY_FACT) == WORKLOAD_FACTS | HOLD_FACTS | PRIVATE
