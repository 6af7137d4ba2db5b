"""``best-peer status``: what this peer has, runs and lets in, as its owner sees it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from peer.cli.cards import devices_table, driver_lines, programs_table
from peer.cli.holding import show_holds, show_used
from peer.cli.keylines import holds_words, is_collectors, may_words
from peer.cli.options import Flag
from peer.cli.place import data_folder
from peer.cli.show import MAX_SENTENCE, dicts, local_time_of_ms, pairs, print_json
from peer.units import DAY, describe_duration, describe_size

if TYPE_CHECKING:
    from collections.abc import Mapping

UNKNOWN: Final = "unknown"
MAX_NAMES: Final = 10
"""Models named in one line."""

Json = dict[str, Any]


def status(*, json: Flag = False) -> None:
    """Show devices, who is on them, workloads and keys of the running peer.

    Args:
        json: One JSON object on standard output, with everything the peer tells, ended keys too.
    """
    import trio

    from peer.cli.door import Door

    door = Door.find(data_folder())
    answer = trio.run(door.get, "/admin/status")
    if json:
        print_json(answer)
    else:
        _show(answer)


def _show(answer: Json) -> None:
    keys = dicts(answer.get("keys"))
    names = {str(key.get("holder")): str(key.get("name")) for key in keys}
    version = answer.get("peer", {}).get("version", UNKNOWN)
    pairs(
        [
            ("door", str(answer.get("endpoint", UNKNOWN))),
            ("data", str(answer.get("data", UNKNOWN))),
            ("version", str(version)),
            ("streams", f"{answer.get('streams', UNKNOWN)} open"),
            *_runtime(answer.get("runtime")),
            *driver_lines(answer.get("driver")),
            *_engines(dicts(answer.get("engines")), dicts(answer.get("devices"))),
        ],
        most=MAX_SENTENCE,
    )
    devices = dicts(answer.get("devices"))
    devices_table(devices)
    programs_table(dicts(answer.get("cards")), devices)
    show_used(answer.get("busy"), devices)
    show_holds(dicts(answer.get("holds")), answer.get("affected"))
    workloads = answer.get("workloads", {})
    _deployments(dicts(workloads.get("deployments")), names)
    _jobs(dicts(workloads.get("jobs")), names)
    _keys(keys)


def _runtime(runtime: Any) -> list[tuple[str, str]]:
    """What runs the work, where it does not answer: every phase below is then as it was last known."""
    if not isinstance(runtime, dict) or runtime.get("answers") is not False:
        return []
    name = str(runtime.get("name", UNKNOWN))
    lines = [("runtime", f"{name} does not answer: what is shown of workloads is as it was last known")]
    if name == "docker":
        fix = "look at its log (journalctl -u docker), and restart it when it hangs; what waits then goes on"
        lines.append(("", fix))
    return lines


def _engines(engines: list[Json], devices: list[Json]) -> list[tuple[str, str]]:
    if not engines:
        return [("engines", "none: the peer's log says what to install")]
    here = {str(api.get("api")) for device in devices for api in dicts(device.get("apis"))}
    return [_engine(each, here) for each in engines]


def _engine(engine: Json, here: set[str]) -> tuple[str, str]:
    name = str(engine.get("engine", UNKNOWN))
    needed = engine.get("apis")
    if here and isinstance(needed, list) and needed and here.isdisjoint(map(str, needed)):
        return name, f"no device here runs it: it needs {' or '.join(map(str, needed))}"
    if "models" not in engine:
        return name, "fetches what is named"
    models = [str(model.get("model")) for model in dicts(engine.get("models"))]
    more = f" and {len(models) - MAX_NAMES} more" if len(models) > MAX_NAMES else ""
    return name, (", ".join(models[:MAX_NAMES]) + more) if models else "no model"


def _deployments(deployments: list[Json], names: Mapping[str, str]) -> None:
    from peer.cli.tables import Column, table

    print()
    table(
        "Deployments",
        [
            Column("Deployment", whole=True),
            Column("Model", gives=True, least=10, whole=True),
            Column("Engine"),
            Column("Device"),
            Column("Memory", right=True),
            Column("Phase"),
            Column("Key", gives=True, least=8),
        ],
        (
            [
                str(each.get("deployment", UNKNOWN)),
                str(each.get("model", UNKNOWN)),
                str(each.get("engine", UNKNOWN)),
                str(each.get("device", UNKNOWN)),
                _size(each, "memory_bytes"),
                str(each.get("phase", UNKNOWN)),
                names.get(str(each.get("holder")), str(each.get("holder"))),
            ]
            for each in deployments
        ),
        "No model is served. An agent that was let in serves one with deploy-model.",
    )


def _jobs(jobs: list[Json], names: Mapping[str, str]) -> None:
    from peer.cli.tables import Column, table

    print()
    table(
        "Jobs",
        [
            Column("Job", whole=True),
            Column("Image", gives=True, least=10, whole=True),
            Column("Device"),
            Column("Memory", right=True),
            Column("Box"),
            Column("Phase"),
            Column("Key", gives=True, least=8),
        ],
        (
            [
                str(each.get("job", UNKNOWN)),
                str(each.get("image", UNKNOWN)),
                str(each.get("device", "none")),
                _size(each, "memory_bytes") if "memory_bytes" in each else "none",
                "closed" if each.get("boxed", True) else "open",
                str(each.get("phase", UNKNOWN)),
                names.get(str(each.get("holder")), str(each.get("holder"))),
            ]
            for each in jobs
        ),
        "No job runs.",
    )


def _keys(keys: list[Json]) -> None:
    from peer.cli.tables import Column, table

    shown = [key for key in keys if key.get("state") == "open" or key.get("deployments") or key.get("jobs")]
    print()
    table(
        "Keys",
        [
            Column("Name", gives=True, least=8),
            Column("Holder", whole=True),
            Column("May", gives=True, least=10),
            Column("Holds", gives=True, least=11),
            Column("State"),
        ],
        (
            [
                str(key.get("name", UNKNOWN)),
                str(key.get("holder", UNKNOWN)),
                may_words(key),
                "nothing" if is_collectors(key) else holds_words(key),
                _state(key),
            ]
            for key in shown
        ),
        "Nobody is let in. An agent that signs in shows a code: best-peer approve CODE.",
    )
    if ended := len(keys) - len(shown):
        verb = "key has" if ended == 1 else "keys have"
        print(f"\n{ended} more {verb} ended; best-peer keys --all shows all.")


def _state(key: Json) -> str:
    state = str(key.get("state", UNKNOWN))
    ends = key.get("expires_ms")
    if state != "open" or not isinstance(ends, int):
        return state
    left = max(0, ends // 1000 - int(time.time()))
    return f"ends in {describe_duration(left)}" if left < 7 * DAY else f"ends {local_time_of_ms(ends)[:10]}"


def _size(holder: Json, name: str) -> str:
    size = holder.get(name)
    return describe_size(size) if isinstance(size, int) else UNKNOWN
