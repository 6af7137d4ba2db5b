"""A door that serves, and an agent who may do everything there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.peers import OpenDoor, open_door

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.agents import Agent


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[OpenDoor]:
    async with open_door(tmp_path) as door:
        yield door


@pytest.fixture
async def agent(door: OpenDoor) -> Agent:
    return await door.sign_in("tester")
