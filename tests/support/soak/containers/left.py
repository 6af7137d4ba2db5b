"""What is wrong once a kill is over: in the facts, in the promises, and with what is left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import trio

from tests.support.docker.kernel import cgroup_processes
from tests.support.soak.containers.ground import LOOK_SECONDS
from tests.support.soak.history import living, problems

if TYPE_CHECKING:
    from tests.support.docker.own import OwnEngine
    from tests.support.soak.containers.ground import Ground

REST_SECONDS = 60.0
"""A bound on a hang, no measure of speed: what has ended is removed after its end is told."""

HELPER_SECONDS = 10.0
"""After that a helper of a container that is gone ends no more."""

NETWORKS = frozenset({"bridge", "host", "none"})
"""Docker's own. A peer has one more while it runs, and not two of it."""


async def what_is_wrong(ground: Ground, name: str, *, forgetful: bool) -> list[str]:
    """Everything, once all is at rest.

    Args:
        ground: where to look.
        name: the work's.
        forgetful: the engine was killed. A dockerd that is killed while a container ends may forget
            containerd's helper of it for good: its API tells nothing of it. Those are counted apart.
    """
    there: list[str] = []
    with trio.move_on_after(REST_SECONDS):
        while there := await trio.to_thread.run_sync(left, ground.engine, ground.network):  # noqa: ASYNC110 - nothing tells
            await trio.sleep(LOOK_SECONDS)
    found = [f"{each} is left" for each in there]
    helping: dict[int, str] = {}
    with trio.move_on_after(HELPER_SECONDS):
        while helping := await trio.to_thread.run_sync(helpers, ground.engine, ground.forgotten):  # noqa: ASYNC110
            await trio.sleep(LOOK_SECONDS)
    if forgetful and not there:
        ground.forgotten |= helping.keys()
    else:
        found += [f"the process {pid}, {words}, is left" for pid, words in helping.items()]
    facts = ground.facts()
    await ground.known([fact for fact in facts if fact.get("causationid") in ground.accepted][-1])
    found += problems(facts, ground.accepted)
    found += [f"{each} lives, as the facts have it" for each in living(facts)]
    hardware = await ground.query("get-hardware-state")
    promised = sum(device["memory_promised_bytes"] for device in hardware["devices"])
    if promised:
        found.append(f"{promised} bytes are promised")
    workloads = await ground.query("get-workloads")
    if workloads["deployments"] or workloads["jobs"] or workloads["held_bytes"]:
        found.append(f"get-workloads says {workloads}")
    if ground.runs.told.count(name) > 1:
        found.append(f"its program ran {ground.runs.told.count(name)} times")
    return found


def left(engine: OwnEngine, network: str) -> list[str]:
    """What an engine has that nobody ordered, but for the network of a peer that runs."""
    found = [f"the container {row['Names']} ({row['State']})" for row in engine.containers()]
    with engine.client() as client:
        volumes = client.get("/volumes").raise_for_status().json()["Volumes"] or []
        networks = client.get("/networks").raise_for_status().json()
    found += [f"the volume {row['Name']}" for row in volumes]
    names = [row["Name"] for row in networks if row["Name"] not in NETWORKS]
    if network in names:
        names.remove(network)
    found += [f"the network {name}" for name in names]
    return found + [f"the process {pid} of a container" for pid in cgroup_processes(engine.cgroup)]


def helpers(engine: OwnEngine, forgotten: set[int]) -> dict[int, str]:
    """The processes that an engine has beside containers while those are there, but for the forgotten."""
    exec_root = f"{engine.folder}/exec/"
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode("utf-8", "replace").replace("\0", " ")
        except OSError:
            continue
        if (
            int(process.name) not in forgotten
            and exec_root in words
            and ("containerd-shim" in words or words.startswith("runc"))
        ):
            found[int(process.name)] = words[:100]
    return found
