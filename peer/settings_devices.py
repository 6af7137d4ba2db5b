"""The settings of the devices: how they are seen, and when their owner's own use comes first (F17, F28)."""

from __future__ import annotations

from typing import Final, Literal

import attrs

from peer.setting import entry, one_of, percent
from peer.units import parse_duration, parse_size

DURATION_EXPECTED: Final = "seconds, or a number with s, m, h or d"


def _on(text: str) -> bool:
    return one_of("on", "off")(text) == "on"


@attrs.frozen(kw_only=True, slots=False)
class DeviceSettings:
    """How accelerators are read. Ratios are 0 to 1."""

    gpu: Literal["nvml", "none"] = attrs.field(
        metadata=entry(
            name="BEST_PEER_GPU",
            default="nvml",
            parse=one_of("nvml", "none"),
            takes="nvml or none",
            help="How the peer sees accelerators: nvml, through the library of NVIDIA's driver, without "
            "which the start is refused; none serves the host's CPU as the one device.",
        )
    )
    driver_wait: int = attrs.field(
        metadata=entry(
            name="BEST_PEER_DRIVER_WAIT",
            default="0",
            parse=parse_duration,
            takes=DURATION_EXPECTED,
            help="How long a start waits for the driver and a card, where they come up after the peer does; "
            "0 looks once.",
        )
    )
    busy: bool = attrs.field(
        metadata=entry(
            name="BEST_PEER_BUSY",
            default="on",
            parse=_on,
            takes="on or off",
            help="Whether a card that its owner uses takes no new work; off, for a server that runs "
            "another GPU service of its own.",
        )
    )
    busy_memory: int = attrs.field(
        metadata=entry(
            name="BEST_PEER_BUSY_MEMORY",
            default="2G",
            parse=lambda text: parse_size(text, minimum=1),
            takes="a size (2G)",
            help="How much of a card's memory programs that are not the peer's must hold for the card to "
            "be busy: more than this.",
        )
    )
    busy_utilisation: float = attrs.field(
        metadata=entry(
            name="BEST_PEER_BUSY_UTILISATION",
            default="30",
            parse=percent,
            takes="percent, 1 to 100",
            help="How much of a card's compute programs that are not the peer's must use for the card to be "
            "busy: more than this.",
        )
    )
    busy_after: int = attrs.field(
        metadata=entry(
            name="BEST_PEER_BUSY_AFTER",
            default="30s",
            parse=parse_duration,
            takes=DURATION_EXPECTED,
            help="For how long they must before the card is busy.",
        )
    )
    free_after: int = attrs.field(
        metadata=entry(
            name="BEST_PEER_FREE_AFTER",
            default="5m",
            parse=parse_duration,
            takes=DURATION_EXPECTED,
            help="For how long they must stay under both before a busy card is free again.",
        )
    )
    busy_every: int = attrs.field(
        metadata=entry(
            name="BEST_PEER_BUSY_EVERY",
            default="5s",
            parse=lambda text: parse_duration(text, minimum=1, maximum=60),
            takes=f"{DURATION_EXPECTED}; 1s to 1m",
            help="How often the programs on the cards are read for that.",
        )
    )
