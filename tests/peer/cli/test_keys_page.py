"""`docs/keys.md` says what is so: its commands are taken, its refusals are the rules' own words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from actors.rules.grants import check_grant
from actors.rules.placement import place_job
from actors.rules.refusal import Refusal
from actors.rules.shares import check_deployment, check_job
from actors.state.keys import SCOPES, Grant, Key
from actors.state.promises import Holding
from actors.state.world import World
from adapters.gpu.fake import cpu_device, cuda_device
from peer.cli.app import make_app
from peer.door.problems import STATUS

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = (Path(__file__).parents[3] / "docs" / "keys.md").read_text()
GIB = 1 << 30
MIN_QUOTE = 20
SHARED = Key("h", "lab", Grant(memory_bytes=40 * GIB, deployments=2, jobs=4), 0)
HELD = Holding(38 * GIB, {"dep-1"})


def test_every_command_on_the_page_is_taken() -> None:
    calls = re.findall(r"`best-peer ([^`]+)`|^\$ best-peer (.+)$", PAGE, re.MULTILINE)
    assert len(calls) > 12
    for inline, shown in calls:
        words = (inline or shown).split()
        if words != ["revoke"]:
            make_app().parse_args(words)


def test_every_option_of_an_approval_and_every_scope_is_on_the_page() -> None:
    found = make_app()["approve"].assemble_argument_collection()
    options = [name for each in found for name in each.names if name.startswith("--")]
    assert len(options) > 8
    for name in (*options, *SCOPES):
        assert name in PAGE


def test_every_code_on_the_page_is_one_of_the_doors() -> None:
    named = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)*)`", PAGE))
    assert named <= set(STATUS)
    assert len(named) > 8


def on_the_cpu() -> None:
    place_job(
        memory_bytes=GIB,
        wanted_device="cpu",
        wanted_isolation=None,
        isolation="container",
        devices=(cuda_device(), cpu_device()),
        grant=Grant(accelerators_only=True),
        world=World(),
    )


@pytest.mark.parametrize(
    "refuse",
    [
        lambda: check_deployment(SHARED, HELD, 3 * GIB),
        lambda: check_job(SHARED, HELD, None),
        lambda: check_deployment(SHARED, Holding(0, {"dep-1", "dep-2"}), GIB),
        lambda: check_job(SHARED, Holding(0, set(), {"job-1", "job-2", "job-3", "job-4"}), GIB),
        lambda: check_grant(Grant(expires_seconds=400 * 86_400), is_session=False),
        on_the_cpu,
    ],
)
def test_each_refusal_is_quoted_as_it_is_said(refuse: Callable[[], object]) -> None:
    with pytest.raises(Refusal) as refused:
        refuse()
    said = refused.value
    quoted = [text for text in PAGE.split("`")[1::2] if len(text) > MIN_QUOTE and text in said.message]
    assert quoted, said.message
