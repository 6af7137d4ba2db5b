"""A house that is not even started, with workloads in its fold: what is read of the world, without actors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from actors.house import House
from actors.kernel.workers import Workers
from actors.messages.commands import Accepted, DeployModel
from actors.messages.envelope import EnvelopeEncoder
from actors.store import Store
from adapters.clock.fake import FakeClock
from adapters.gpu.fake import GIB, FakeGpu, cuda_device
from adapters.runtime.fake import FakeRuntime

if TYPE_CHECKING:
    from pathlib import Path

CARD = cuda_device()


@attrs.define
class Ground:
    """The house and the fakes it stands on."""

    house: House
    gpu: FakeGpu
    runtime: FakeRuntime

    def serve(
        self,
        workload: str,
        *pids: int,
        device: str = CARD.uuid,
        started: bool = True,
        memory_bytes: int = GIB,
    ) -> None:
        """A deployment with these processes."""
        model = DeployModel("m", "ollama", memory_bytes)
        accepted = Accepted(f"c-{workload}", "h", "c", "t", model, workload, "gpu-0", device)
        self.house.store.world.accept(accepted)
        if started:
            self.house.store.world.deployments[workload].reach("ready", "t")
        self.runtime.plant(workload)
        self.runtime.set_processes(workload, frozenset(pids))


def ground_on(folder: Path, gpu: FakeGpu, runtime: FakeRuntime | None = None) -> Ground:
    """One over an empty folder."""
    clock, runtime = FakeClock(), runtime or FakeRuntime()
    store = Store(folder, EnvelopeEncoder("urn:test", {}), clock)
    return Ground(House(store, Workers(), clock, runtime, {}, gpu), gpu, runtime)
