"""What an approval may say: more than the most is refused, never cut (F12)."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.rules.grants import (
    DURABLE_SECONDS,
    LEAST_MEMORY_BYTES,
    SESSION_SECONDS,
    check_asked,
    check_grant,
    default_expiry,
    scopes_when_unsaid,
    wider,
    without_use,
)
from actors.rules.refusal import Refusal
from actors.state.keys import SCOPES, Grant


def refused(*, is_session: bool = False, **grant: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        check_grant(Grant(**grant), is_session=is_session)
    assert caught.value.code == "INVALID_GRANT"
    return caught.value


@pytest.mark.parametrize("scope", SCOPES)
def test_each_scope_may_stand_alone(scope: str) -> None:
    check_grant(Grant(scopes=(scope,)), is_session=False)  # type: ignore[arg-type]


def test_metrics_stands_alone() -> None:
    assert "stands alone" in refused(scopes=("metrics", "deploy")).message
    assert "stands alone" in refused(scopes=("all", "metrics")).message


@pytest.mark.parametrize(
    ("option", "grant"),
    [
        ("--memory", {"memory_bytes": 4 << 30}),
        ("--deployments", {"deployments": 0}),
        ("--jobs", {"jobs": 2}),
        ("--workspaces", {"workspaces": 2}),
        ("--open-jobs", {"open_jobs": True}),
        ("--accelerators-only", {"accelerators_only": True}),
    ],
)
def test_what_says_something_of_workloads_is_refused_for_metrics_and_not_dropped(
    option: str, grant: dict[str, Any]
) -> None:
    refusal = refused(scopes=("metrics",), **grant)
    assert option in refusal.message
    assert refusal.details["options"] == [option]
    check_grant(Grant(scopes=("deploy",), **grant), is_session=False)


@pytest.mark.parametrize(
    ("scopes", "option", "grant", "may"),
    [
        (("prompt",), "--jobs", {"jobs": 3}, "prompt,jobs"),
        (("deploy", "prompt"), "--jobs", {"jobs": 0}, "deploy,prompt,jobs"),
        (("deploy",), "--open-jobs", {"memory_bytes": 1 << 30, "open_jobs": True}, "deploy,jobs"),
        (("jobs",), "--deployments", {"deployments": 1}, "jobs,deploy"),
        (("jobs",), "--workspaces", {"workspaces": 0}, "jobs,workspaces"),
    ],
)
def test_what_bounds_a_scope_that_is_not_granted_is_refused_with_what_would_grant_it(
    scopes: tuple[Any, ...], option: str, grant: dict[str, Any], may: str
) -> None:
    """Refused rather than dropped, as for metrics; whoever decides may leave it of a wider grant."""
    asked = Grant(scopes=scopes, **grant)
    with pytest.raises(Refusal) as caught:
        check_asked(asked, is_session=False)
    assert caught.value.code == "INVALID_GRANT"
    assert caught.value.details["options"] == [option]
    assert caught.value.message == (
        f"{option} would mean nothing to a key for {' and '.join(scopes)}; "
        f"leave that out, or approve it with --may {may}"
    )
    assert check_grant(asked, is_session=False) is asked
    enough: list[Any] = [may.split(","), ["all"]]
    for each in enough:
        check_asked(attrs.evolve(asked, scopes=tuple(each)), is_session=False)


def test_all_that_would_mean_nothing_is_named_at_once() -> None:
    with pytest.raises(Refusal) as caught:
        check_asked(Grant(("prompt",), deployments=1, jobs=1, open_jobs=True), is_session=False)
    assert caught.value.message == (
        "--deployments and --jobs and --open-jobs would mean nothing to a key for prompt; "
        "leave that out, or approve it with --may prompt,deploy,jobs"
    )


@pytest.mark.parametrize("scope", SCOPES)
def test_what_concerns_every_key_is_taken_with_any_scope(scope: Any) -> None:
    """A share makes a key a tenant's, and a hidden processor is hidden: neither is about one scope."""
    check_asked(Grant((scope,), expires_seconds=60), is_session=False)
    if scope != "metrics":
        check_asked(Grant((scope,), memory_bytes=1 << 30, accelerators_only=True), is_session=False)


def test_what_is_asked_is_held_to_the_bounds_first() -> None:
    with pytest.raises(Refusal, match="--expires takes"):
        check_asked(Grant(("prompt",), jobs=1, expires_seconds=0), is_session=False)
    with pytest.raises(Refusal, match="a key for metrics runs nothing, so --jobs would mean nothing"):
        check_asked(Grant(("metrics",), jobs=1), is_session=False)


@pytest.mark.parametrize(
    ("scopes", "said"),
    [
        (("prompt",), "can prompt nothing: "),
        (("jobs", "prompt", "workspaces"), "can prompt nothing: "),
        (("deploy",), "deploys what nobody can prompt: "),
        (("deploy", "jobs"), "deploys what nobody can prompt: "),
        (("deploy", "prompt"), None),
        (("jobs",), None),
        (("workspaces",), None),
        (("metrics",), None),
        (("all",), None),
        (("all", "prompt"), None),
    ],
)
def test_a_right_that_nothing_can_come_of_is_said_with_what_is_missing(
    scopes: tuple[Any, ...], said: str | None
) -> None:
    """A key prompts what it deployed and nothing else, so that one scope without the other is of no use."""
    asked = Grant(scopes=scopes)
    check_asked(asked, is_session=False)
    found = without_use(asked)
    assert len(found) == (said is not None)
    assert all(words.startswith(str(said)) and "--may deploy,prompt" in words for words in found)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (400 * 86_400, "400d"),
        (367 * 86_400 + 3600, "8809h"),
        (-90, "-90s"),
        (0, "0s"),
        (366 * 86_400 + 60, "527041m"),
    ],
)
def test_a_life_that_is_too_long_is_told_as_it_is_written(seconds: int, words: str) -> None:
    message = refused(expires_seconds=seconds).message
    assert message == f"--expires takes 1s to 366d, not {words}"


def test_an_unknown_scope_is_named_and_none_is_refused() -> None:
    assert "fly" in refused(scopes=("fly", "deploy")).message
    refused(scopes=())


@pytest.mark.parametrize(("is_session", "most"), [(False, DURABLE_SECONDS), (True, SESSION_SECONDS)])
def test_the_longest_life_is_given_and_a_second_more_is_refused(most: int, *, is_session: bool) -> None:
    """366 days at most, and eight hours for a session's."""
    check_grant(Grant(expires_seconds=most), is_session=is_session)
    assert refused(is_session=is_session, expires_seconds=most + 1).details["limit_seconds"] == most
    refused(is_session=is_session, expires_seconds=0)


def test_a_sessions_key_ends_after_eight_hours_when_nothing_was_said() -> None:
    assert default_expiry(Grant(), is_session=True) == SESSION_SECONDS
    assert default_expiry(Grant(), is_session=False) is None
    assert default_expiry(Grant(expires_seconds=5), is_session=True) == 5


@pytest.mark.parametrize("name", ["memory_bytes", "deployments", "jobs", "workspaces"])
def test_a_figure_is_never_negative_nor_absurd(name: str) -> None:
    figures: list[dict[str, Any]] = [{name: -1}, {name: 1 << 60}]
    for figure in figures:
        assert refused(**figure).details["field"] == name
    least: dict[str, Any] = {name: LEAST_MEMORY_BYTES if name == "memory_bytes" else 0}
    check_grant(Grant(**least), is_session=False)


@pytest.mark.parametrize("share", [0, 9, LEAST_MEMORY_BYTES - 1])
def test_a_share_that_nothing_fits_in_is_refused_with_what_to_write(share: int) -> None:
    words = f"--memory takes 1M to 1024T, not {share} bytes; write a share with its unit, --memory 40G"
    assert refused(memory_bytes=share).message == words


def test_a_key_with_a_share_and_nothing_said_is_a_tenants() -> None:
    """Easily missed 1 and 2."""
    assert scopes_when_unsaid(None) == ("all",)
    assert set(scopes_when_unsaid(1 << 30)) == {"deploy", "jobs", "prompt", "workspaces"}


@given(st.integers(-10, 2 * DURABLE_SECONDS), st.booleans())
def test_what_is_granted_is_what_was_asked(seconds: int, is_session: bool) -> None:
    grant = Grant(expires_seconds=seconds)
    most = SESSION_SECONDS if is_session else DURABLE_SECONDS
    if 1 <= seconds <= most:
        assert check_grant(grant, is_session=is_session) is grant
    else:
        refused(is_session=is_session, expires_seconds=seconds)


SHARED = Grant(
    scopes=("deploy", "jobs"),
    memory_bytes=10,
    deployments=2,
    jobs=3,
    workspaces=4,
    expires_seconds=60,
    accelerators_only=True,
)


@pytest.mark.parametrize(
    ("option", "more"),
    [
        ("--may", {"scopes": ("deploy", "prompt")}),
        ("--may", {"scopes": ("all",)}),
        ("--memory", {"memory_bytes": 11}),
        ("--deployments", {"deployments": 3}),
        ("--deployments", {"deployments": None}),
        ("--jobs", {"jobs": 4}),
        ("--jobs", {"jobs": None}),
        ("--workspaces", {"workspaces": 5}),
        ("--expires", {"expires_seconds": 61}),
        ("--expires", {"expires_seconds": None}),
        ("--open-jobs", {"open_jobs": True}),
        ("--accelerators-only", {"accelerators_only": False}),
    ],
)
def test_each_way_in_which_a_grant_is_wider_is_named(option: str, more: dict[str, Any]) -> None:
    """F15: an approver grants at most what was asked."""
    assert wider(SHARED, attrs.evolve(SHARED, **more)) == (option,)
    assert wider(SHARED, SHARED) == ()


def test_a_key_without_a_share_is_wider_than_one_with_it_and_its_jobs_are_open() -> None:
    assert wider(SHARED, attrs.evolve(SHARED, memory_bytes=None)) == ("--memory", "--open-jobs")


@pytest.mark.parametrize(
    "less",
    [
        {"scopes": ("prompt",)},
        {"scopes": ("metrics",)},
        {"memory_bytes": 1, "open_jobs": True},
        {"deployments": 0, "jobs": 0, "workspaces": 0, "expires_seconds": 1, "accelerators_only": True},
    ],
)
def test_less_than_everything_is_never_wider(less: dict[str, Any]) -> None:
    assert wider(Grant(), attrs.evolve(Grant(), **less)) == ()
