"""What ``best-peer status`` shows of devices, their driver and the programs on the cards (F16, F17)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from peer.cli.show import MAX_SENTENCE, dicts
from peer.units import describe_size

if TYPE_CHECKING:
    from collections.abc import Iterator

UNKNOWN: Final = "unknown"

WHOSE: Final = {
    "others": "not the peer's",
    "unsure": "unknown",
    "gone": "ended",
}
"""What is said of a program that belongs to no workload. `ended`: the card has not got its memory back."""

Json = dict[str, Any]


def driver_lines(driver: Any) -> list[tuple[str, str]]:
    """How the driver is, and what to do about it; nothing where none is asked."""
    if not isinstance(driver, dict):
        return []
    condition = str(driver.get("condition", UNKNOWN))
    lines = [("driver", f"{driver.get('version', 'version unknown')}, {condition}")]
    unreadable = driver.get("unreadable")
    if isinstance(unreadable, int):
        lines.append(("", f"{unreadable} of its cards cannot be told apart and are not served"))
    fault = driver.get("fault")
    if isinstance(fault, dict):
        lines.append(("", str(fault.get("reason", UNKNOWN))))
        lines.append(("", f"to mend it: {fault.get('fix', UNKNOWN)}"))
    return lines


def devices_table(devices: list[Json]) -> None:
    """The devices, and why those that cannot be used cannot; a blank line before each table."""
    from peer.cli.tables import Column, table

    print()
    table(
        "Devices",
        [
            Column("Device"),
            Column("Name", gives=True, least=8),
            Column("Memory", right=True),
            Column("Free", right=True),
            Column("Promised", right=True),
            Column("Compute", right=True),
            Column("State"),
        ],
        (
            [
                str(device.get("id", UNKNOWN)),
                str(device.get("name", UNKNOWN)),
                _size(device, "memory_total_bytes"),
                _size(device, "memory_free_bytes"),
                _size(device, "memory_promised_bytes"),
                _ratio(device.get("utilisation_ratio")),
                _state(device),
            ]
            for device in devices
        ),
        "The peer sees no device.",
    )
    reasons = [(d, d["condition_reason"]) for d in devices if "condition_reason" in d]
    if reasons:
        print()
        table(
            "Not to be used",
            [Column("Device"), Column("Why", gives=True, least=20, most=MAX_SENTENCE)],
            ([str(device.get("id", UNKNOWN)), str(reason)] for device, reason in reasons),
            "",
        )


def programs_table(cards: list[Json], devices: list[Json]) -> None:
    """Which programs are on the cards and whose they are; nothing on a machine without cards."""
    from peer.cli.tables import Column, table

    if not cards:
        return
    names = {str(device.get("uuid")): str(device.get("id", UNKNOWN)) for device in devices}
    print()
    table(
        "Programs on the cards",
        [
            Column("Device"),
            Column("Process", right=True),
            Column("Program", gives=True, least=8),
            Column("Whose", gives=True, least=12),
            Column("Memory", right=True),
            Column("Compute", right=True),
        ],
        (row for card in cards for row in _programs(card, names)),
        "Nobody uses a card.",
    )


def _programs(card: Json, names: dict[str, str]) -> Iterator[list[str]]:
    device = names.get(str(card.get("uuid")), str(card.get("uuid", UNKNOWN)))
    if not card.get("known", False):
        yield [device, UNKNOWN, "the driver does not say", UNKNOWN, UNKNOWN, UNKNOWN]
        return
    for one in dicts(card.get("own")):
        yield _program(device, one, str(one.get("workload", UNKNOWN)))
    for kind, whose in WHOSE.items():
        for one in dicts(card.get(kind)):
            yield _program(device, one, whose)


def _program(device: str, one: Json, whose: str) -> list[str]:
    return [
        device,
        str(one.get("pid", UNKNOWN)),
        str(one.get("name", UNKNOWN)),
        whose,
        _size(one, "memory_bytes"),
        _ratio(one.get("utilisation_ratio")),
    ]


def _state(device: Json) -> str:
    condition = str(device.get("condition", "ready"))
    return condition if condition != "ready" else str(device.get("availability", {}).get("state", UNKNOWN))


def _size(holder: Json, name: str) -> str:
    size = holder.get(name)
    return describe_size(size) if isinstance(size, int) else UNKNOWN


def _ratio(value: Any) -> str:
    return f"{value:.0%}" if isinstance(value, int | float) else UNKNOWN
