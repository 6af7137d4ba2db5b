"""An engine beside the runtime that runs its programs, as a deployment uses the two."""

import attrs
import trio

from adapters.engine.port import Engine, Plan
from adapters.gpu.fake import cpu_device
from adapters.gpu.port import Device
from adapters.runtime.port import Handle, Runtime, WorkloadSpec

MIB = 1024**2
GIB = 1024**3


@attrs.define
class Served:
    """An engine and the runtime that runs its programs.

    Args:
        engine: the engine.
        runtime: what runs it.
        model: what it is to serve when nothing else is said.
        memory_bytes: and what that is promised.
        device: and where.
    """

    engine: Engine
    runtime: Runtime
    model: str = "tiny"
    memory_bytes: int = 100 * MIB
    device: Device = attrs.field(factory=cpu_device)

    async def plan(self, model: str | None = None, memory_bytes: int | None = None) -> Plan:
        """What is settled for a model."""
        promise = self.memory_bytes if memory_bytes is None else memory_bytes
        return await self.engine.plan(self.model if model is None else model, promise)

    async def start(self, plan: Plan, workload: str = "dep-1") -> Handle:
        """Run what a plan needs."""
        image = self.engine.image(self.device)
        program = self.engine.program(plan, self.device, workload=workload, image=image)
        detail = {**dict(plan.detail), **program.detail}
        uuids = () if self.device.is_cpu else (self.device.uuid,)
        return await self.runtime.start(WorkloadSpec(workload, "h-1", program, uuids, detail=detail))

    async def ready(
        self, model: str | None = None, memory_bytes: int | None = None, workload: str = "dep-1"
    ) -> Handle:
        """Serve a model until it is ready."""
        handle = await self.start(await self.plan(model, memory_bytes), workload)
        with trio.fail_after(60):
            await self.engine.make_ready(handle, lambda percent: None)
        return handle
