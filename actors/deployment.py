"""A deployment: started, made ready, watched, ended; found again after a restart (F19, F37).

The actor's state is the fold's. At each start it looks what the fold says and what really runs, and goes on
from there: every step first looks whether it is done already.
"""

import logging

import attrs
import trio
from msgspec import UNSET

from actors.house import House
from actors.kernel.child import ChildSpec
from actors.kernel.mailbox import Mailbox
from actors.messages import events as e
from actors.messages.commands import Accepted, UndeployModel
from actors.messages.envelope import Fact
from actors.state.world import Deployment
from adapters.engine.port import Engine, EngineFault, EngineMissing, Plan, Served
from adapters.runtime.port import Exit, Handle, StartFailed, WorkloadSpec

logger = logging.getLogger("best_peer.engine")

PROGRESS_STEP_PCT = 5
"""Loading is told when it has moved this far: a fact for each percent would drown the others."""


@attrs.frozen
class End:
    """End the deployment. The reason is told unless an undeploy asked for it."""

    reason: str | None = None


def deployment_spec(house: House, identifier: str) -> ChildSpec:
    """How a deployment's actor is supervised."""

    async def exhausted(crash: BaseException) -> None:
        actor = DeploymentActor(house, identifier)
        await actor.give_up(f"this peer's own part of it kept failing: {type(crash).__name__}")

    return ChildSpec(
        name=identifier,
        make=lambda: DeploymentActor(house, identifier),
        exhausted=exhausted,
        grace_seconds=1.0,
    )


def undeployed(undeploy: Accepted) -> Fact:
    """The fact that completes an undeploy."""
    assert isinstance(undeploy.body, UndeployModel)
    event = e.Undeployed(undeploy.body.deployment)
    return Fact(event, undeploy.holder, undeploy.correlation, undeploy.id)


class DeploymentActor:
    """One deployment from its acceptance to its end."""

    def __init__(self, house: House, identifier: str) -> None:
        self._house = house
        self._id = identifier
        self._end: End | None = None

    async def run(self, inbox: Mailbox[End]) -> None:
        """Live until the deployment has ended and that was told."""
        deployment = self._deployment()
        if deployment is None:
            return
        if deployment.phase == "ending":
            self._end = End()
        else:
            await self._live_until_asked_to_end(deployment, inbox)
        if self._end is not None:
            await self._stop_and_tell(deployment, self._end)
        await self._complete_undeploy(deployment)

    async def give_up(self, reason: str) -> None:
        """End it after repeated crashes, and tell so."""
        deployment = self._deployment()
        if deployment is not None:
            await self._stop_and_tell(deployment, End(reason))
            await self._complete_undeploy(deployment)

    async def _live_until_asked_to_end(self, deployment: Deployment, inbox: Mailbox[End]) -> None:
        async with trio.open_nursery() as nursery:

            async def listen() -> None:
                self._end = await inbox.receive()
                nursery.cancel_scope.cancel("asked to end")

            nursery.start_soon(listen)
            await self._live(deployment)
            nursery.cancel_scope.cancel("it ended by itself")

    async def _live(self, deployment: Deployment) -> None:
        engine = self._house.engines.get(deployment.engine)
        if engine is None:
            await self._fail(
                deployment,
                "ENGINE_UNAVAILABLE",
                f"this peer has no engine {deployment.engine}",
                "deploy with an engine that get-hardware-state lists",
            )
            return
        handle = await self._house.runtime.find(self._id)
        if deployment.was_ready:
            if handle is None:
                # What it wrote and how it ended may still be known, to whoever looks.
                await self._tell_end(deployment, await self._house.runtime.wait(self._id))
                return
            await self._watch(deployment, engine, handle)
        elif deployment.started and handle is None:
            ended = await self._house.runtime.wait(self._id)
            await self._fail(
                deployment,
                "INTERRUPTED",
                "the peer restarted while the model loaded, and its engine did not survive that",
                "deploy the model again",
                ended,
            )
        else:
            await self._bring_up(deployment, engine, handle)

    async def _bring_up(self, deployment: Deployment, engine: Engine, handle: Handle | None) -> None:
        begun = trio.current_time()
        try:
            plan = await engine.plan(deployment.model, deployment.memory_bytes)
            if handle is None:
                handle = await self._start(deployment, engine, plan)
        except (EngineFault, StartFailed) as fault:
            code = fault.code if isinstance(fault, EngineFault) else "START_FAILED"
            await self._fail(deployment, code, fault.reason, fault.fix)
            return
        if not deployment.started:
            await self._tell(deployment, self._started(deployment))
        served = await self._make_ready(deployment, engine, handle)
        if served is None:
            return
        await self._tell(
            deployment,
            e.DeploymentReady(
                deployment=self._id,
                model=deployment.model,
                engine=deployment.engine,
                device=deployment.device,
                context_tokens=UNSET if served.context_tokens is None else served.context_tokens,
                load_ms=round((trio.current_time() - begun) * 1000),
            ),
        )
        await self._watch(deployment, engine, handle)

    async def _start(self, deployment: Deployment, engine: Engine, plan: Plan) -> Handle:
        devices = await self._house.gpu.devices()
        device = next((d for d in devices if d.uuid == deployment.device_uuid), None)
        if device is None:
            raise EngineMissing(
                f"the device {deployment.device} is not there any more",
                fix="read get-hardware-state and deploy on a device it lists",
            )
        return await self._house.runtime.start(
            WorkloadSpec(
                workload=self._id,
                holder=deployment.holder,
                program=engine.program(plan, device, workload=self._id),
                device_uuids=(device.uuid,),
                memory_bytes=self._house.engine_memory_bytes,
                detail={"model": deployment.model, "engine": deployment.engine},
            )
        )

    def _started(self, deployment: Deployment) -> e.DeploymentStarted:
        return e.DeploymentStarted(
            deployment=self._id,
            model=deployment.model,
            engine=deployment.engine,
            device=deployment.device,
            device_uuid=deployment.device_uuid,
            memory_bytes=deployment.memory_bytes,
            isolation=self._house.runtime.isolation,
            holder=deployment.holder,
        )

    async def _make_ready(self, deployment: Deployment, engine: Engine, handle: Handle) -> Served | None:
        """Race the model's first answer against its program's end and its bounds; None when it failed."""
        outcome: list[Served | EngineFault | Exit] = []
        bounds = self._house.bounds
        loading = _Loading()

        with trio.move_on_after(bounds.ready + bounds.load) as bound:
            async with trio.open_nursery() as nursery:

                async def end_first(result: Served | EngineFault | Exit) -> None:
                    outcome.append(result)
                    nursery.cancel_scope.cancel("decided")

                async def ask() -> None:
                    try:
                        await end_first(await engine.make_ready(handle, loading.note))
                    except EngineFault as fault:
                        # A program that died explains more than a port that does not answer.
                        with trio.move_on_after(2):
                            await self._house.runtime.wait(self._id)
                            await trio.sleep_forever()
                        await end_first(fault)

                async def watch() -> None:
                    await end_first(await self._house.runtime.wait(self._id))

                nursery.start_soon(ask)
                nursery.start_soon(watch)
                nursery.start_soon(self._tell_loading, deployment, loading)
        result = outcome[0] if outcome else None
        if isinstance(result, Served):
            return result
        if isinstance(result, Exit):
            fault = engine.explain(result)
            await self._fail(deployment, fault.code, fault.reason, fault.fix, result)
        elif result is not None:
            await self._stop_then_fail(deployment, result.code, result.reason, result.fix)
        else:
            assert bound.cancelled_caught
            await self._stop_then_fail(
                deployment,
                "LOAD_TIMEOUT",
                f"the model gave no answer within {bounds.ready + bounds.load:.0f} s",
                "deploy a smaller model, or raise BEST_PEER_READY_SECONDS or BEST_PEER_LOAD_SECONDS",
            )
        return None

    async def _tell_loading(self, deployment: Deployment, loading: "_Loading") -> None:
        if deployment.phase != "loading":
            await self._tell(deployment, e.WeightsLoading(self._id))
        told = 0
        while True:
            percent = await loading.wait_above(told + PROGRESS_STEP_PCT - 1)
            await self._tell(deployment, e.WeightsLoading(self._id, progress_pct=percent))
            told = percent

    async def _watch(self, deployment: Deployment, engine: Engine, handle: Handle) -> None:
        self._house.addresses.publish(self._id, engine, handle)
        try:
            ended = await self._house.runtime.wait(self._id)
        finally:
            self._house.addresses.withdraw(self._id)
        await self._tell_end(deployment, ended)

    async def _tell_end(self, deployment: Deployment, ended: Exit) -> None:
        if ended.out_of_memory:
            event: e.Event = e.OutOfMemory(
                deployment=self._id,
                reason="the engine was ended for want of memory",
                fix="deploy again with more memory_bytes, or a smaller model",
                exit_code=ended.code,
                output=ended.output,
            )
        else:
            code = "an unknown exit code" if ended.code is None else f"exit code {ended.code}"
            event = e.DeploymentEnded(
                deployment=self._id,
                reason=f"the engine ended by itself with {code}; deploy the model again",
                exit_code=ended.code,
                output=ended.output,
            )
        await self._tell(deployment, event)
        await self._house.runtime.discard(self._id)

    async def _stop_and_tell(self, deployment: Deployment, end: End) -> None:
        """The wish to stop is kept (an accepted undeploy, or a revoked key) until the runtime confirms it."""
        self._house.addresses.withdraw(self._id)
        await self._house.runtime.stop(self._id, grace_seconds=self._house.bounds.stop)
        if self._deployment() is not None:
            deploy_is_open = deployment.command in self._house.store.world.unfinished
            if deployment.ended_by is None or deploy_is_open:
                reason = end.reason or "it was undeployed before it was ready"
                await self._tell(deployment, e.DeploymentEnded(self._id, reason))
        await self._complete_undeploy(deployment)
        await self._house.runtime.discard(self._id)

    async def _complete_undeploy(self, deployment: Deployment) -> None:
        """Tell the undeploy's own end, also when the deployment had ended by itself meanwhile."""
        undeploy = deployment.ended_by
        if undeploy is not None and undeploy.id in self._house.store.world.unfinished:
            await self._house.store.events.tell(undeployed(undeploy))

    async def _stop_then_fail(self, deployment: Deployment, code: str, reason: str, fix: str) -> None:
        output = await self._house.runtime.tail(self._id)
        await self._house.runtime.stop(self._id, grace_seconds=self._house.bounds.stop)
        await self._fail(deployment, code, reason, fix, Exit(None, output))

    async def _fail(
        self, deployment: Deployment, code: str, reason: str, fix: str, ended: Exit | None = None
    ) -> None:
        event = e.DeploymentFailed(
            deployment=self._id,
            code=code,
            reason=reason,
            fix=fix,
            exit_code=UNSET if ended is None else ended.code,
            output=UNSET if ended is None else ended.output,
        )
        await self._tell(deployment, event)
        await self._house.runtime.discard(self._id)

    async def _tell(self, deployment: Deployment, event: e.Event) -> None:
        await self._house.store.events.tell(self._fact(deployment, event))

    def _fact(self, deployment: Deployment, event: e.Event) -> Fact:
        return Fact(event, deployment.holder, deployment.correlation, deployment.command)

    def _deployment(self) -> Deployment | None:
        return self._house.store.world.deployments.get(self._id)


class _Loading:
    """The last percentage that an engine said; only the newest matters."""

    def __init__(self) -> None:
        self._percent = 0
        self._moved = trio.Event()

    def note(self, percent: int | None) -> None:
        """Never blocks; figures outside 0 to 100 are taken to the nearest."""
        if percent is not None:
            self._percent = min(100, max(0, percent))
            self._moved.set()

    async def wait_above(self, percent: int) -> int:
        while self._percent <= percent:
            self._moved = trio.Event()
            await self._moved.wait()
        return self._percent
