"""An engine beside the runtime that runs its programs, as a deployment uses the two."""

import attrs
import trio

from adapters.engine.port import Engine, Plan
from adapters.gpu.fake import cpu_device
from adapters.runtime.port import Handle, Runtime, WorkloadSpec

MIB = 1024**2


@attrs.define
class Served:
    """An engine and the runtime that runs its programs."""

    engine: Engine
    runtime: Runtime

    async def start(self, plan: Plan, workload: str = "dep-1") -> Handle:
        """Run what a plan needs."""
        program = self.engine.program(plan, cpu_device(), workload=workload)
        return await self.runtime.start(
            WorkloadSpec(workload=workload, holder="h-1", program=program, detail=dict(plan.detail))
        )

    async def ready(self, model: str = "tiny", memory_bytes: int = 100 * MIB) -> Handle:
        """Serve a model until it is ready."""
        handle = await self.start(await self.engine.plan(model, memory_bytes))
        with trio.fail_after(60):
            await self.engine.make_ready(handle, lambda percent: None)
        return handle
