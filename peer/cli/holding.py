"""What the owner is told of holds: who is affected before, and what came of it after (F29)."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from peer.cli.show import dicts, local_time, safe, short_id
from peer.units import describe_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MAX_LINES: Final = 20
"""Workloads that are shown one by one."""

USED_BY: Final = {"memory": "hold much of its memory", "utilisation": "use much of its compute"}

Json = dict[str, Any]


def say_before(answer: Json, *, now: bool) -> None:
    """Which holds are replaced and who will be affected, as the door sees it before anything is held."""
    devices = names(str(each.get("id")) for each in dicts(answer.get("devices")))
    for line in _replaced(dicts(answer.get("replaces"))):
        print(line)
    work = dicts(answer.get("work"))
    if not work:
        print(f"Nothing runs on {devices}.")
        return
    print(f"On {devices} now, which {'ends' if now else 'runs on'}:")
    _show_work(work, "best-peer status shows all")


def say_held(answer: Json, *, now: bool, seconds: int | None = None) -> None:
    """What is held, for how many seconds where it was said so, and what came of what runs there."""
    held = dicts(answer.get("held"))
    devices = [str(each.get("device")) for each in held]
    reason = f" ({safe(held[0]['reason'])})" if held and held[0].get("reason") else ""
    verb = "takes" if len(devices) == 1 else "take"
    lasts = "" if seconds is None else f"for {describe_duration(seconds)}, "
    print(f"Held: {names(devices)} {verb} no new work {lasts}until {until_words(held)}{reason}.")
    work = dicts(answer.get("work"))
    running = [str(each) for each in answer.get("still_running", ())]
    starting = [each for each in work if now and not each.get("started")]
    ended = [each for each in work if each.get("started") and str(each.get("workload")) not in running]
    if now and ended:
        print(f"Ended, and their holders told: {_ids(ended)}.")
    elif ended:
        print(f"Runs on: {_ids(ended)}.")
    if running:
        why = "best-peer status says whether what runs it answers"
        print(f"Still running: {names(map(short_id, running))}. The peer goes on trying to end it; {why}.")
    if starting:
        print(f"Not started yet: {_ids(starting)}. It ends as soon as it starts, if this holds then.")


def say_released(released: Sequence[Json], holds: Sequence[Json]) -> None:
    """What takes work again, and what is held still."""
    if released:
        devices = [str(each.get("device")) for each in released]
        print(f"Released: {names(devices)} {'takes' if len(devices) == 1 else 'take'} work again.")
    else:
        print("Nothing was held.")
    if holds:
        print(f"Held still: {names(str(each.get('device')) for each in holds)}.")


def show_used(used: Any, devices: Sequence[Json]) -> None:
    """The cards that take no work since others than the peer use them, a line each, after a blank one."""
    ids = {str(each.get("uuid")): str(each.get("id")) for each in devices}
    reasons = used.items() if isinstance(used, dict) else ()
    if reasons:
        print()
    for card, why in reasons:
        what = USED_BY.get(str(why), safe(why, 40))
        device = safe(ids.get(str(card), card), 64)
        print(f"{device} takes no new work: programs that are not the peer's {what}.")


def show_holds(holds: Sequence[Json], affected: Any) -> None:
    """The holds that stand, and who is affected where that is told; nothing where there is none."""
    from peer.cli.tables import Column, table

    if not holds:
        return
    print()
    table(
        "Held by you",
        [
            Column("Device"),
            Column("Until", gives=True, least=10),
            Column("Reason", gives=True, least=10),
            Column("What runs there"),
        ],
        (
            [
                str(each.get("device")),
                until_words([each]),
                str(each.get("reason") or "none"),
                "ends" if each.get("now") else "runs on",
            ]
            for each in holds
        ),
        "",
    )
    if affected is None:
        return
    work = dicts(affected)
    print()
    if not work:
        print("Nothing runs on them.")
    ending = [each for each in work if each.get("ends")]
    staying = [each for each in work if not each.get("ends")]
    for words, some in (("Of what runs on them, this ends:", ending), ("This runs on:", staying)):
        if some:
            print(words)
            _show_work(some, "all are listed below")


def until_words(held: Sequence[Json]) -> str:
    """When a hold ends by itself, in this machine's zone, or by whom."""
    until = held[0].get("until") if held else None
    if until is None:
        return "best-peer release"
    try:
        return local_time(datetime.fromisoformat(str(until)))
    except (ValueError, OverflowError):
        return safe(until, 40)


def names(devices: Iterable[str]) -> str:
    """Names in a sentence: `gpu-0, gpu-1 and cpu`."""
    *most, last = [safe(each, 64) for each in devices] or ["no device"]
    return f"{', '.join(most)} and {last}" if most else last


def _replaced(holds: Sequence[Json]) -> Iterator[str]:
    """A line for each hold that another takes the place of, the devices of one act together."""
    of_one: dict[str, list[Json]] = {}
    for each in holds:
        of_one.setdefault(str(each.get("hold")), []).append(each)
    for held in of_one.values():
        until = "it is released" if held[0].get("until") is None else until_words(held)
        reason = f" ({safe(held[0]['reason'])})" if held[0].get("reason") else ""
        devices = names(str(each.get("device")) for each in held)
        yield f"This replaces the hold on {devices} until {until}{reason}."


def _show_work(work: Sequence[Json], elsewhere: str) -> None:
    for each in work[:MAX_LINES]:
        print(f"  {_workload(each)}")
    if len(work) > MAX_LINES:
        print(f"  and {len(work) - MAX_LINES} more; {elsewhere}")


def _ids(work: Iterable[Json]) -> str:
    return names(short_id(str(each.get("workload"))) for each in work)


def _workload(each: Json) -> str:
    key = each.get("name")
    whose = f"key {safe(key, 64)}" if key else f"holder {short_id(str(each.get('holder')))}"
    starting = "" if each.get("started") else ", not started yet"
    what, device = safe(each.get("what"), 80), safe(each.get("device"), 64)
    return f"{short_id(str(each.get('workload')))}  {what} on {device}, {whose}{starting}"
