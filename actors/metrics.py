"""The series of a door, and what one key reads of them at this moment (F36).

Series tell what a collector charts, facts what happened. They are made from the fold and one reading of the
devices each time they are asked for, so that none outlives what it is about; what making them costs goes by
what lives now, never by what has been. What is unknown has no series: a figure that is shown is one that was
read.
"""

from collections.abc import Iterable, Iterator
from math import isfinite
from typing import Final, Literal, Self, get_args

import attrs

from actors.counts import CommandCounts
from actors.reports import Hardware
from actors.state.keys import Key
from actors.state.workloads import Deployment, Job, JobPhase, Phase
from actors.state.world import World
from adapters.gpu.port import Device

Kind = Literal["gauge", "counter", "info"]
Readers = Literal["every key", "all or metrics"]
Unit = Literal["bytes", "ratio", "celsius", "watts", "joules"]

Sample = tuple[tuple[str, ...], float]
"""The values of a series' labels, in the order in which it declares them, and its own."""
Samples = tuple["Series", list[Sample]]


@attrs.frozen
class Series:
    """A family of time series.

    Args:
        name: as it is charted; a counter's ends in `_total`, what only has labels to say in `_info`.
        labels: in the order in which a sample gives them.
        about: what it is, one sentence without a full stop, backslash or quotation mark.
        unit: the end of its name, a counter's before `_total`, where that is a unit.
        readers: which keys find it; those that see less than everything find their own of it.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    about: str
    unit: Unit | None = None
    readers: Readers = "every key"


_DEVICE: Final = ("device", "vendor", "api")

PEER: Final = Series("best_peer_info", "info", ("version", "driver"), "The peer and the driver it reads")
READABLE: Final = Series(
    "best_peer_hardware_readable",
    "gauge",
    (),
    "Whether the driver answered this scrape; at 0 there are no series of devices",
)
DEVICE: Final = Series(
    "best_peer_device_info",
    "info",
    (*_DEVICE, "name", "apis", "slicing"),
    "What each device is and offers",
)
MEMORY_TOTAL: Final = Series(
    "best_peer_device_memory_total_bytes", "gauge", _DEVICE, "All memory of a device", "bytes"
)
MEMORY_FREE: Final = Series(
    "best_peer_device_memory_free_bytes",
    "gauge",
    _DEVICE,
    "Memory of a device that the driver says is free",
    "bytes",
)
MEMORY_PROMISED: Final = Series(
    "best_peer_device_memory_promised_bytes",
    "gauge",
    _DEVICE,
    "Memory of a device that is promised to the workloads of all keys",
    "bytes",
    "all or metrics",
)
UTILISATION: Final = Series(
    "best_peer_device_utilisation_ratio",
    "gauge",
    _DEVICE,
    "Part of the last moments in which a device was computing",
    "ratio",
)
TEMPERATURE: Final = Series(
    "best_peer_device_temperature_celsius", "gauge", _DEVICE, "Temperature of a device", "celsius"
)
POWER: Final = Series("best_peer_device_power_watts", "gauge", _DEVICE, "What a device draws", "watts")
ENERGY: Final = Series(
    "best_peer_device_energy_joules_total",
    "counter",
    _DEVICE,
    "What a device has used since its driver was loaded",
    "joules",
)
DEPLOYMENT: Final = Series(
    "best_peer_deployment_info",
    "info",
    ("deployment", "device", "holder", "model", "engine"),
    "What each deployment is, while it lives",
)
DEPLOYMENT_PHASE: Final = Series(
    "best_peer_deployment_phase",
    "gauge",
    ("deployment", "phase"),
    "1 for the phase that a deployment is in, 0 for each other",
)
DEPLOYMENT_MEMORY: Final = Series(
    "best_peer_deployment_memory_promised_bytes",
    "gauge",
    ("deployment", "device", "holder"),
    "Device memory that is promised to a deployment",
    "bytes",
)
JOB: Final = Series(
    "best_peer_job_info", "info", ("job", "device", "holder"), "What each job is, while it lives"
)
JOB_PHASE: Final = Series(
    "best_peer_job_phase", "gauge", ("job", "phase"), "1 for the phase that a job is in, 0 for each other"
)
JOB_MEMORY: Final = Series(
    "best_peer_job_memory_promised_bytes",
    "gauge",
    ("job", "device", "holder"),
    "Device memory that is promised to a job",
    "bytes",
)
PROMPTS: Final = Series(
    "best_peer_prompts_total",
    "counter",
    ("deployment", "outcome"),
    "Prompts that a deployment answered, and that failed there",
)
TOKENS: Final = Series(
    "best_peer_prompt_tokens_total",
    "counter",
    ("deployment", "kind"),
    "Tokens that the engine of a deployment counted, read and written",
)
ACCEPTED: Final = Series(
    "best_peer_commands_accepted_total",
    "counter",
    ("command",),
    "Commands that the door accepted since the peer started",
    readers="all or metrics",
)
REFUSED: Final = Series(
    "best_peer_commands_refused_total",
    "counter",
    ("command", "code"),
    "Commands that the door refused since the peer started",
    readers="all or metrics",
)
EVENTS: Final = Series(
    "best_peer_events_total",
    "counter",
    ("event",),
    "Facts told since the log began",
    readers="all or metrics",
)
STREAMS: Final = Series(
    "best_peer_event_streams", "gauge", (), "Event streams that are open", readers="all or metrics"
)

SERIES: Final[tuple[Series, ...]] = (
    *(PEER, READABLE, DEVICE, MEMORY_TOTAL, MEMORY_FREE, MEMORY_PROMISED),
    *(UTILISATION, TEMPERATURE, POWER, ENERGY),
    *(DEPLOYMENT, DEPLOYMENT_PHASE, DEPLOYMENT_MEMORY, JOB, JOB_PHASE, JOB_MEMORY),
    *(PROMPTS, TOKENS, ACCEPTED, REFUSED, EVENTS, STREAMS),
)
"""Every series there is, in the order in which they are told."""

_PHASES: Final[tuple[str, ...]] = get_args(Phase)
_JOB_PHASES: Final[tuple[str, ...]] = get_args(JobPhase)


@attrs.frozen
class Eyes:
    """What a key reads here, which is what it reads elsewhere.

    Args:
        holder: whose workloads it finds.
        sees_all: it finds everybody's, and what is counted of the whole door.
        sees_cpu: it finds the host's processor among the devices.
    """

    holder: str
    sees_all: bool
    sees_cpu: bool

    @classmethod
    def of(cls, key: Key) -> Self:
        """The eyes of an open key: a collector's sees all of this, and nothing elsewhere."""
        return cls(
            holder=key.holder,
            sees_all=key.sees_all or key.is_metrics_only,
            sees_cpu=not key.grant.accelerators_only,
        )


@attrs.frozen
class Scene:
    """What there is to be seen, all at one moment.

    Args:
        version: the product's.
        world: the door's fold.
        hardware: the latest reading of the devices; None: it did not come in time.
        commands: the door's counts.
        events: the types that a key may read at this door; others are not counted to anybody.
        streams: open event streams.
    """

    version: str
    world: World
    hardware: Hardware | None
    commands: CommandCounts
    events: Iterable[str]
    streams: int

    @property
    def devices(self) -> tuple[Device, ...] | None:
        """The devices; None where the driver did not answer."""
        hardware = self.hardware
        return hardware.devices if hardware is not None and hardware.driver.is_readable else None


def samples(scene: Scene, eyes: Eyes) -> Iterator[Samples]:
    """Each series that these eyes find something of, in the order of `SERIES`."""
    for series, found in _all(scene, eyes):
        if found and (eyes.sees_all or series.readers == "every key"):
            yield series, found


def _all(scene: Scene, eyes: Eyes) -> Iterator[Samples]:
    driver = None if scene.hardware is None else scene.hardware.driver.driver_version
    yield PEER, [((scene.version, driver or ""), 1)]
    devices = scene.devices
    yield READABLE, [((), 0 if devices is None else 1)]
    seen = [d for d in devices or () if eyes.sees_cpu or not d.is_cpu]
    yield from _of_devices(seen, scene.world.promised)
    # A card may have come back under another number since a workload was placed on it.
    names = {device.uuid: device.id for device in seen}
    yield from _of_workloads(scene.world, eyes, names)
    yield from _of_door(scene)


def _of_devices(devices: list[Device], promised: dict[str, int]) -> Iterator[Samples]:
    named = [((d.id, d.vendor, d.apis[0].api if d.apis else ""), d) for d in devices]

    def figures(series: Series, value: str) -> Samples:
        found = [(labels, getattr(device, value)) for labels, device in named]
        return series, [
            (labels, figure) for labels, figure in found if figure is not None and isfinite(figure)
        ]

    yield DEVICE, [((*labels, d.name, _apis(d), d.slicing), 1) for labels, d in named]
    yield figures(MEMORY_TOTAL, "total_bytes")
    yield figures(MEMORY_FREE, "memory_free_bytes")
    yield MEMORY_PROMISED, [(labels, promised.get(d.uuid, 0)) for labels, d in named]
    yield figures(UTILISATION, "utilisation_ratio")
    yield figures(TEMPERATURE, "temperature_celsius")
    yield figures(POWER, "power_watts")
    yield figures(ENERGY, "energy_joules")


def _apis(device: Device) -> str:
    """`cuda 13.0`; with commas between several."""
    return ",".join(a.api if a.version is None else f"{a.api} {a.version}" for a in device.apis)


def _deployments(world: World, eyes: Eyes) -> Iterable[Deployment]:
    if eyes.sees_all:
        return world.deployments.values()
    return [world.deployments[each] for each in sorted(world.holding(eyes.holder).deployments)]


def _jobs(world: World, eyes: Eyes) -> Iterable[Job]:
    if eyes.sees_all:
        return world.jobs.values()
    return [world.jobs[each] for each in sorted(world.holding(eyes.holder).jobs)]


def _of_workloads(world: World, eyes: Eyes, names: dict[str, str]) -> Iterator[Samples]:
    deployments = [
        (d, (d.id, names.get(d.device_uuid, d.device), d.holder)) for d in _deployments(world, eyes)
    ]
    jobs = [(j, (j.id, names.get(j.device_uuid or "", j.device or ""), j.holder)) for j in _jobs(world, eyes)]
    yield DEPLOYMENT, [((*labels, d.model, d.engine), 1) for d, labels in deployments]
    yield DEPLOYMENT_PHASE, _phases(((d.id, d.phase) for d, _ in deployments), _PHASES)
    yield DEPLOYMENT_MEMORY, [(labels, d.memory_bytes) for d, labels in deployments]
    yield JOB, [(labels, 1) for _, labels in jobs]
    yield JOB_PHASE, _phases(((j.id, j.phase) for j, _ in jobs), _JOB_PHASES)
    yield JOB_MEMORY, [(labels, j.memory_bytes) for j, labels in jobs if j.memory_bytes is not None]
    yield (
        PROMPTS,
        [
            ((d.id, outcome), count)
            for d, _ in deployments
            for outcome, count in (("answered", d.prompts_answered), ("failed", d.prompts_failed))
        ],
    )
    yield (
        TOKENS,
        [
            ((d.id, kind), count)
            for d, _ in deployments
            for kind, count in (("prompt", d.prompt_tokens), ("completion", d.completion_tokens))
        ],
    )


def _phases(now: Iterable[tuple[str, str]], every: tuple[str, ...]) -> list[Sample]:
    return [((workload, phase), int(phase == current)) for workload, current in now for phase in every]


def _of_door(scene: Scene) -> Iterator[Samples]:
    counts, told = scene.commands, scene.world.events_told
    yield ACCEPTED, [((command,), count) for command, count in counts.accepted.items()]
    yield REFUSED, [(labels, count) for labels, count in counts.refused.items()]
    yield EVENTS, [((event,), told.get(event, 0)) for event in scene.events]
    yield STREAMS, [((), scene.streams)]
