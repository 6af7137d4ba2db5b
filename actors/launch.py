"""A deployment's program, from its plan to its start: the device, the image, and what runs it (F19, F21)."""

import attrs

from actors.away import start
from actors.cards import promised_device
from actors.house import House
from actors.image import Tell, ensure_image
from actors.state.workloads import Deployment
from adapters.engine.port import Engine
from adapters.gpu.port import Device
from adapters.images.port import Image
from adapters.runtime.port import Container, Handle, WorkloadSpec


@attrs.define(eq=False)
class Launch:
    """Starts one deployment's engine, and again where its port was taken: with the image it had then."""

    house: House
    deployment: Deployment
    engine: Engine
    tell: Tell
    _image: Image | None = attrs.field(default=None, init=False)

    async def start(self) -> Handle:
        """Start the engine's program, or find it running. What runs it may be away for `Bounds.away`.

        Raises:
            EngineFault: the model is not served here any more.
            ImageFault: there is no image to start.
            StartFailed: it could not be started, or its device is not to be used.
        """
        deployment, house = self.deployment, self.house
        plan = await self.engine.plan(deployment.model, deployment.memory_bytes)
        device = await promised_device(house, deployment.device_uuid, deployment.device, is_size_needed=True)
        image = await self._have_image(device)
        program = self.engine.program(
            plan, device, workload=deployment.id, image=image, spare_bytes=self._spare_bytes(device)
        )
        if isinstance(program, Container):
            program = attrs.evolve(program, tasks=house.ceilings.engine_tasks)
        spec = WorkloadSpec(
            workload=deployment.id,
            holder=deployment.holder,
            program=program,
            device_uuids=() if device.is_cpu else (device.uuid,),
            memory_bytes=house.ceilings.engine_memory_bytes,
            detail={**dict(plan.detail), **program.detail},
        )
        return await start(house, spec)

    def _spare_bytes(self, device: Device) -> int:
        """What nobody was promised of the device."""
        return max(0, device.memory_total_bytes - self.house.store.world.promised.get(device.uuid, 0))

    async def _have_image(self, device: Device) -> str | None:
        """What to start, as the runtime knows it; None for a program of the host."""
        reference = self.engine.image(device)
        if reference is None:
            return None
        if self._image is None:
            self._image = await ensure_image(self.house, reference, self.tell, deployment=self.deployment.id)
        return self._image.run
