"""What a key may hold (F12)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.rules.refusal import Refusal
from actors.rules.shares import check_deployment, check_job
from actors.state.keys import Grant, Key
from actors.state.promises import Holding


def key(**grant: int) -> Key:
    return Key("h", "n", Grant(**grant), 0)  # type: ignore[arg-type]


def test_a_share_is_held_together_by_all_workloads() -> None:
    check_deployment(key(memory_bytes=10), Holding(6, {"a"}), 4)
    with pytest.raises(Refusal) as refused:
        check_deployment(key(memory_bytes=10), Holding(6, {"a"}), 5)
    assert refused.value.code == "SHARE_EXCEEDED"
    assert refused.value.details == {
        "held_bytes": 6,
        "share_bytes": 10,
        "available_bytes": 4,
        "requested_bytes": 5,
    }


def test_a_key_without_share_holds_what_fits() -> None:
    check_deployment(key(), Holding(1 << 50, {str(n) for n in range(500)}), 1 << 50)


def test_a_count_is_refused_before_the_memory_is_looked_at() -> None:
    with pytest.raises(Refusal) as refused:
        check_deployment(key(memory_bytes=1, deployments=2), Holding(1, {"a", "b"}), 5)
    assert refused.value.code == "DEPLOYMENTS_EXCEEDED"
    assert refused.value.details == {"held": 2, "limit": 2}


def test_a_count_of_none_means_no_deployment_at_all() -> None:
    with pytest.raises(Refusal):
        check_deployment(key(deployments=0), Holding(), 1)


def test_what_is_left_is_never_negative() -> None:
    """A key may hold more than its share after its owner approved it anew with less."""
    with pytest.raises(Refusal) as refused:
        check_deployment(key(memory_bytes=5), Holding(9, {"a"}), 1)
    assert refused.value.details["available_bytes"] == 0


def test_jobs_are_counted_and_share_the_memory_with_deployments() -> None:
    check_job(key(memory_bytes=10, jobs=2), Holding(6, {"a"}, {"j"}), 4)
    for holding, size, code in (
        (Holding(6, {"a"}, {"j"}), 5, "SHARE_EXCEEDED"),
        (Holding(0, set(), {"j", "k"}), 1, "JOBS_EXCEEDED"),
    ):
        with pytest.raises(Refusal) as refused:
            check_job(key(memory_bytes=10, jobs=2), holding, size)
        assert refused.value.code == code
    assert refused.value.details == {"held": 2, "limit": 2}
    with pytest.raises(Refusal):
        check_job(key(jobs=0), Holding(), None)


def test_a_key_with_a_share_has_to_ask_for_a_promise_for_its_job() -> None:
    """Its jobs run where its share counts them (seed)."""
    with pytest.raises(Refusal) as refused:
        check_job(key(memory_bytes=10), Holding(6, {"a"}), None)
    assert refused.value.code == "JOB_NEEDS_DEVICE"
    assert refused.value.details == {"held_bytes": 6, "share_bytes": 10, "available_bytes": 4}
    assert "send memory_bytes, 4 at most" in refused.value.message
    check_job(key(memory_bytes=10), Holding(6, {"a"}), 0)
    check_job(key(jobs=2), Holding(), None)


def test_a_key_that_is_not_counted_runs_jobs_without_number() -> None:
    check_job(key(), Holding(1 << 50, set(), {str(n) for n in range(500)}), None)


@pytest.mark.parametrize(
    ("grant", "boxed"),
    [({}, False), ({"memory_bytes": 5}, True), ({"memory_bytes": 5, "open_jobs": True}, False)],
)
def test_a_tenants_jobs_are_boxed_unless_its_approver_opened_them(grant: dict[str, int], boxed: bool) -> None:
    """F31."""
    assert key(**grant).boxes_jobs is boxed


@given(st.integers(0, 100), st.lists(st.integers(1, 50), max_size=10))
def test_what_is_granted_never_passes_the_share(share: int, asked: list[int]) -> None:
    held = Holding()
    for number, size in enumerate(asked):
        if held.memory_bytes + size > share:
            with pytest.raises(Refusal):
                check_deployment(key(memory_bytes=share), held, size)
        else:
            check_deployment(key(memory_bytes=share), held, size)
            held.memory_bytes += size
            held.deployments.add(str(number))
    assert held.memory_bytes <= share


def test_one_of_a_kind_is_told_as_one() -> None:
    limited = key(deployments=1, jobs=1)
    with pytest.raises(Refusal, match="may run 1 deployment at once and runs 1;"):
        check_deployment(limited, Holding(1, {"a"}), 1)
    with pytest.raises(Refusal, match="may run 1 job at once and runs 1;"):
        check_job(limited, Holding(1, set(), {"j"}), 1)


def test_a_key_that_may_none_is_sent_to_its_approver() -> None:
    limited = key(deployments=0, jobs=0)
    for check in (check_deployment, check_job):
        with pytest.raises(
            Refusal, match="at once and runs 0; ask the owner of the machine for a key that may"
        ):
            check(limited, Holding(), 1)
