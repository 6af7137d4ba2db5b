"""What a plan of kills meets."""

from __future__ import annotations

from itertools import product

import pytest

from tests.support.soak.containers.cases import FULL, PHASES, VICTIMS, WORKS, cases_of


@pytest.mark.parametrize("seed", range(5))
def test_a_full_plan_kills_everybody_in_each_phase_of_each_work_on_both_kinds_of_engine(seed: int) -> None:
    cases = cases_of(seed, FULL)
    met = {(case.work, case.victim, case.phase, case.is_kept) for case in cases}
    assert met == set(product(WORKS, VICTIMS, PHASES, (True, False)))


@pytest.mark.parametrize("seed", range(5))
def test_six_kills_meet_every_phase_both_works_and_each_victim(seed: int) -> None:
    cases = cases_of(seed, 6)
    assert {case.phase for case in cases} == set(PHASES)
    assert {case.victim for case in cases} == set(VICTIMS)
    assert {case.work for case in cases} == set(WORKS)


def test_a_seed_makes_the_same_choices_again() -> None:
    assert cases_of(3, FULL) == cases_of(3, FULL)
    assert cases_of(3, FULL) != cases_of(4, FULL)


def test_a_share_is_the_beginning_of_the_whole() -> None:
    assert cases_of(3, 7) == cases_of(3, FULL)[:7]
