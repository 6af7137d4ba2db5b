"""The public validator's probes pass at a door over https: nothing failed or warned, all of it probed."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

from tests.support.peers import open_door
from tests.support.validator import validate

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.probes import Check

SECTIONS = {"discovery", "discipline", "registration", "commands", "events", "queries", "workflows"}


async def probe(folder: Path, *, key: bool) -> list[Check]:
    async with open_door(folder, https=True) as door:
        agent = await door.sign_in("validator")
        deployment = await door.deploy(agent)
        prompt = {"deployment": deployment, "messages": [{"role": "user", "content": "hello"}]}
        await agent.wait_for("PromptAnswered", await agent.command("Prompt", prompt))
        walk = partial(
            validate,
            door.endpoint,
            api_key=agent.key if key else None,
            probe_registration=True,
            verify=door.tls,
        )
        return await trio.to_thread.run_sync(walk)


def bad(checks: list[Check]) -> list[Check]:
    return [check for check in checks if check.level in {"fail", "warn"}]


async def test_with_a_key_everything_is_probed_and_nothing_is_amiss(tmp_path: Path) -> None:
    checks = await probe(tmp_path, key=True)
    assert bad(checks) == []
    passed = [check.section for check in checks if check.level == "pass"]
    assert set(passed) >= SECTIONS
    for section in ("commands", "events", "queries", "workflows"):
        messages = [check.message for check in checks if check.section == section]
        # A surface that was merely refused says so; here each was read.
        assert not any("none was given" in message for message in messages)
        assert any("200" in message for message in messages)
        assert passed.count(section) >= 3


async def test_without_a_key_the_door_is_closed_and_nothing_is_amiss(tmp_path: Path) -> None:
    checks = await probe(tmp_path, key=False)
    assert bad(checks) == []
    refused = [check.section for check in checks if "none was given" in check.message]
    assert refused == ["commands", "events", "queries", "workflows"]
