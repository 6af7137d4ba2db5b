"""What the queries answer, read from the fold and the devices just now (F16)."""

from math import inf
from typing import Any

import attrs
import trio

from actors.available import available_now
from actors.devicereport import device_report, driver_report
from actors.house import House
from actors.rules.refusal import Refusal
from actors.rules.workloads import unknown_job
from actors.state.keys import Key
from actors.state.workloads import Deployment, Job
from adapters.engine.port import Engine
from adapters.gpu.port import Device, GpuState

MOST_MODELS = 200

RECENT_SECONDS = 0.25
"""What was read so lately is just now, to whoever asks: drivers and folders are read in threads, and many who
ask at once would wait for each other."""


@attrs.frozen
class Hardware:
    """The devices as one reading showed them, and what it said of their driver."""

    devices: tuple[Device, ...]
    driver: GpuState


class Machine:
    """A house's devices and models, as they are shown. Admission reads the devices for itself.

    Those who ask at the same time share one reading.
    """

    def __init__(self, house: House) -> None:
        self.house = house
        self._hardware = Hardware((), house.gpu.state)
        self._hardware_at = -inf
        self._hardware_lock = trio.Lock()
        self._engines: list[dict[str, Any]] = []
        self._engines_at = -inf
        self._engines_lock = trio.Lock()

    async def read(self) -> tuple[Hardware, list[dict[str, Any]]]:
        """Devices with their driver, and engines with their models."""
        hardware = await self.hardware()
        asked = trio.current_time()
        if not _is_recent(self._engines_at, asked):
            async with self._engines_lock:
                if not _is_recent(self._engines_at, asked):
                    begun = trio.current_time()
                    engines = [await _engine(engine) for engine in self.house.engines.values()]
                    self._engines, self._engines_at = engines, begun
        return hardware, self._engines

    async def hardware(self) -> Hardware:
        """The devices alone: an engine that is slow to list its models holds nobody up here."""
        asked = trio.current_time()
        if not _is_recent(self._hardware_at, asked):
            async with self._hardware_lock:
                if not _is_recent(self._hardware_at, asked):
                    begun = trio.current_time()
                    devices = await self.house.gpu.devices()
                    self._hardware, self._hardware_at = Hardware(devices, self.house.gpu.state), begun
        return self._hardware


def _is_recent(begun: float, asked: float) -> bool:
    # By when it was asked for: however long a reading takes, all who waited for it share it.
    return asked - begun < RECENT_SECONDS


async def hardware_state(machine: Machine, key: Key | None, *, instance: str, version: str) -> dict[str, Any]:
    """The devices a key may use, what runs on them, and what may be deployed; None is the owner."""
    hardware, engines = await machine.read()
    devices = hardware.devices
    if key is not None and key.grant.accelerators_only:
        devices = tuple(d for d in devices if not d.is_cpu)
    availability = available_now(machine.house, devices)
    return {
        "peer": {"instance": instance, "version": version},
        **({} if hardware.driver.condition == "none" else {"driver": driver_report(hardware.driver)}),
        "devices": [device_report(d, machine.house, availability[d.uuid]) for d in devices],
        "engines": engines,
        "jobs": machine.house.runtime.has_jobs,
    }


def workloads(
    house: House, key: Key | None, deployment: str | None = None, job: str | None = None
) -> dict[str, Any]:
    """A key's own workloads, everybody's for one approved for `all` and for the owner.

    Args:
        house: whose workloads.
        key: who asks; None is the owner.
        deployment, job: list that one alone.

    Raises:
        Refusal: UNKNOWN_DEPLOYMENT, UNKNOWN_JOB: none of that id that this key may see.
    """
    world = house.store.world
    is_everybodys = key is None or key.sees_all
    deployments = [d for d in world.deployments.values() if is_everybodys or d.holder == _holder(key)]
    jobs = [j for j in world.jobs.values() if is_everybodys or j.holder == _holder(key)]
    if deployment is not None or job is not None:
        deployments = [d for d in deployments if d.id == deployment]
        jobs = [j for j in jobs if j.id == job]
    if deployment is not None and not deployments:
        raise Refusal(
            "UNKNOWN_DEPLOYMENT",
            f"this key has no deployment {deployment}; leave the parameter out to list its own",
            deployment=deployment,
        )
    if job is not None and not jobs:
        raise unknown_job(job)
    held = sum(world.promised.values()) if key is None else world.holding(key.holder).memory_bytes
    return {
        "deployments": [_deployment(d) for d in deployments],
        "jobs": [_job(j) for j in jobs],
        "queued": [],
        "held_bytes": held,
        "share_bytes": None if key is None else key.grant.memory_bytes,
    }


def _holder(key: Key | None) -> str | None:
    return None if key is None else key.holder


async def _engine(engine: Engine) -> dict[str, Any]:
    models = await engine.models()
    shown: dict[str, Any] = {"engine": engine.name, "apis": sorted(engine.apis)}
    if models is not None:
        shown["models"] = [
            {
                "model": m.name,
                "digest": m.digest,
                "bytes": m.size_bytes,
                "least_memory_bytes": m.least_memory_bytes,
                **({} if m.context_tokens is None else {"context_tokens": m.context_tokens}),
            }
            for m in models[:MOST_MODELS]
        ]
    return shown


def _deployment(deployment: Deployment) -> dict[str, Any]:
    return {
        "deployment": deployment.id,
        "model": deployment.model,
        "engine": deployment.engine,
        "device": deployment.device,
        "memory_bytes": deployment.memory_bytes,
        "phase": deployment.phase,
        "holder": deployment.holder,
        "correlationId": deployment.correlation,
        "since": deployment.since,
    }


def _job(job: Job) -> dict[str, Any]:
    given = {"device": job.device, "memory_bytes": job.memory_bytes}
    return {
        "job": job.id,
        "image": job.image,
        **{name: value for name, value in given.items() if value is not None},
        "boxed": job.boxed,
        "phase": job.phase,
        "holder": job.holder,
        "correlationId": job.correlation,
        "since": job.since,
    }
