"""Worlds in tests: read back from the log as a restart does, and compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import msgspec

from actors.messages.envelope import EnvelopeEncoder, Fact, Head
from actors.state.world import World

if TYPE_CHECKING:
    from actors.messages.commands import Accepted

HOLDERS = ("h-a", "h-b", "h-c")
START_MS = 1_796_000_000_000

ENCODER = EnvelopeEncoder("urn:test", {})
"""Of the lines that worlds are read back from."""

decode_head = msgspec.json.Decoder(Head).decode


def replayed(told: list[tuple[Fact, int]], kept: list[Accepted]) -> World:
    """What a restart makes of the log: its lines, and the commands that were kept."""
    world = World()
    for accepted in kept:
        world.remember(accepted)
    for seq, (fact, ms) in enumerate(told):
        world.replay(decode_head(ENCODER.line(fact, seq, ms)))
    world.settle()
    return world


def picture(world: World) -> dict[str, Any]:
    """Everything a world says, to compare."""
    return {
        "deployments": {
            d.id: (attrs.asdict(d, recurse=False), d.phase, d.since, d.started, d.was_ready)
            for d in world.deployments.values()
        },
        "jobs": {j.id: (attrs.asdict(j, recurse=False), j.phase, j.since) for j in world.jobs.values()},
        "unfinished": set(world.unfinished),
        "promised": world.promised,
        "holds": {hold.device_uuid: hold for hold in world.holds},
        "owners ends": world.owners_ends,
        "told": world.events_told,
        "holdings": {holder: world.holding(holder) for holder in HOLDERS},
    }
