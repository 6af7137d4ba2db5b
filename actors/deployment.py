"""A deployment: started, made ready, watched, ended; found again after a restart (F19, F37).

The actor's state is the fold's. At each start it looks what the fold says and what really runs, and goes on
from there: every step first looks whether it is done already.
"""

import logging
import math
from collections.abc import Iterable

import trio
from msgspec import UNSET, UnsetType

from actors.away import UNAVAILABLE, find
from actors.ending import (
    End,
    discard,
    named,
    stop_for_good,
    sweep_spec,
)
from actors.house import House
from actors.kernel.child import ChildSpec
from actors.launch import Launch
from actors.loading import load
from actors.messages import events as e
from actors.messages.commands import Accepted, UndeployModel
from actors.messages.envelope import Fact
from actors.release import look_before, not_waited_for
from actors.state.workloads import Deployment
from actors.state.world import World
from actors.workload import WorkloadActor
from adapters.engine.port import Engine, EngineFault, EngineOutOfMemory, PortTaken, Served
from adapters.images.port import ImageFault
from adapters.runtime.port import Exit, Handle, RuntimeFault, RuntimeUnavailable, StartFailed

logger = logging.getLogger("best_peer.engine")

MOST_STARTS = 3
"""An engine whose port another program took is started again, on another."""

HUNG_PROBES = 3
"""A ready engine that does not answer at all so many times in a row has ended for all who use it."""

AGAIN_SECONDS = 1.0
"""Before the next look at one that did not answer: with the five seconds of a look, one that hangs is known
within half a minute."""


def deployment_spec(house: House, identifier: str) -> ChildSpec:
    """How a deployment's actor is supervised."""

    async def exhausted(crash: BaseException) -> None:
        await DeploymentActor(house, identifier).give_up(crash)

    return ChildSpec(
        name=identifier,
        make=lambda: DeploymentActor(house, identifier),
        exhausted=exhausted,
        grace_seconds=1.0,
    )


def undeployed(undeploy: Accepted, memory_note: str | UnsetType = UNSET) -> Fact:
    """The fact that completes an undeploy."""
    assert isinstance(undeploy.body, UndeployModel)
    event = e.Undeployed(undeploy.body.deployment, memory_note)
    return Fact(event, undeploy.holder, undeploy.correlation, undeploy.id)


class DeploymentActor(WorkloadActor[Deployment]):
    """One deployment from its acceptance to its end."""

    def _find(self, world: World) -> Deployment | None:
        return world.deployments.get(self._id)

    def _enders(self, world: World) -> Iterable[Accepted]:
        return world.undeploys_of(self._id)

    def _ended_otherwise(self, ender: Accepted) -> Fact:
        return undeployed(ender)

    def _leave(self) -> None:
        # Also wakes the prompts that wait to learn where it is.
        self._house.addresses.withdraw(self._id)

    def _given_up(self, deployment: Deployment, crash: BaseException, note: str | UnsetType) -> e.Event:
        reason = f"this peer's own part of it kept failing: {named(crash)}"
        fix = "deploy the model again; the owner of the machine finds why in its log"
        if deployment.command in self._house.store.world.unfinished:
            return e.DeploymentFailed(self._id, "INTERNAL", reason, fix, memory_note=note)
        return e.DeploymentEnded(self._id, f"{reason}; {fix}", memory_note=note)

    async def _live(self, deployment: Deployment) -> None:
        engine = self._house.engines.get(deployment.engine)
        if engine is None:
            await self._without_engine(deployment)
            return
        try:
            # What was started is looked for until that is known; what was not may not wait for ever.
            away = math.inf if deployment.started else self._house.bounds.away
            handle = await find(self._house, self._id, seconds=away)
        except RuntimeUnavailable as fault:
            fix = "deploy the model again once the owner of the machine has its container engine running"
            await self._fail(deployment, UNAVAILABLE, str(fault), fix)
            return
        if deployment.was_ready:
            if handle is None:
                # What it wrote and how it ended may still be known, to whoever looks.
                await self._tell_end(deployment, engine, await self._house.runtime.wait(self._id))
            else:
                await self._watch(deployment, engine, handle)
        elif deployment.started and handle is None:
            await self._tell_interrupted(deployment, engine)
        else:
            await self._bring_up(deployment, engine, handle)

    async def _bring_up(self, deployment: Deployment, engine: Engine, handle: Handle | None) -> None:
        adopted, begun = handle is not None, trio.current_time()

        async def tell_loading(percent: int | None) -> None:
            if percent is not None or deployment.stage != "loading":
                pct = UNSET if percent is None else percent
                await self._tell(deployment, e.WeightsLoading(self._id, progress_pct=pct))

        async def tell(event: e.Event) -> None:
            await self._tell(deployment, event)

        launch = Launch(self._house, deployment, engine, tell)
        for start in range(1, MOST_STARTS + 1):
            if handle is None:
                try:
                    handle = await launch.start()
                except (EngineFault, ImageFault, StartFailed) as fault:
                    await self._fail(deployment, fault.code, fault.reason, fault.fix)
                    return
                begun = trio.current_time()
            if not deployment.started:
                await self._tell(deployment, self._started(deployment))
            outcome = await load(self._house, self._id, engine, handle, tell_loading)
            if isinstance(outcome, Served):
                load_ms = UNSET if adopted else round((trio.current_time() - begun) * 1000)
                await self._tell(deployment, self._ready(deployment, outcome, load_ms))
                await self._watch(deployment, engine, handle)
                return
            if isinstance(outcome, EngineFault):
                await self._stop_then_fail(deployment, outcome)
                return
            why = engine.explain(outcome)
            if not isinstance(why, PortTaken) or start == MOST_STARTS:
                await self._fail(deployment, why.code, why.reason, why.fix, outcome)
                return
            logger.info("%s is started again: %s", self._id, why.reason)
            await discard(self._house, self._id)
            handle = None

    async def _watch(self, deployment: Deployment, engine: Engine, handle: Handle) -> None:
        self._house.addresses.publish(self._id, engine, handle)
        ended: list[Exit] = []
        try:
            async with trio.open_nursery() as nursery:

                async def wait() -> None:
                    ended.append(await self._house.runtime.wait(self._id))
                    nursery.cancel_scope.cancel("it has ended")

                nursery.start_soon(wait)
                await self._until_hung(engine, handle)
                nursery.cancel_scope.cancel("it hangs")
        finally:
            self._house.addresses.withdraw(self._id)
        if ended:
            await self._tell_end(deployment, engine, ended[0])
            return
        output = await self._last_lines()
        await self._stop(deployment)
        reason = "the engine ran and answered nothing any more, so it was ended; deploy the model again"
        note = await self._memory_note(deployment)
        await self._tell(deployment, e.DeploymentEnded(self._id, reason, output=output, memory_note=note))

    async def _until_hung(self, engine: Engine, handle: Handle) -> None:
        missed = 0
        while missed < HUNG_PROBES:
            pause = self._house.bounds.probe
            await trio.sleep(min(pause, AGAIN_SECONDS) if missed else pause)
            if await engine.is_alive(handle):
                missed = 0
            elif await self._is_known_to_run():
                missed += 1

    async def _is_known_to_run(self) -> bool:
        """Whether its silence is its own: a container engine that is away may take its port with it."""
        try:
            return await self._house.runtime.find(self._id) is not None
        except RuntimeUnavailable:
            return False

    async def _stop(self, deployment: Deployment) -> None:
        await look_before(self._house, deployment)
        await stop_for_good(self._house, self._id)

    async def _last_lines(self) -> tuple[str, ...]:
        try:
            return await self._house.runtime.tail(self._id)
        except RuntimeFault:
            return ()

    async def _tell_end(self, deployment: Deployment, engine: Engine, ended: Exit) -> None:
        fault = engine.explain(ended)
        note = await self._memory_note(deployment)
        if ended.out_of_memory or isinstance(fault, EngineOutOfMemory):
            event: e.Event = e.OutOfMemory(
                deployment=self._id,
                reason=fault.reason,
                fix=fault.fix,
                exit_code=ended.code,
                output=ended.output,
                memory_note=note,
            )
        else:
            event = e.DeploymentEnded(
                deployment=self._id,
                reason=f"{fault.reason}; {fault.fix}",
                exit_code=ended.code,
                output=ended.output,
                memory_note=note,
            )
        await self._tell(deployment, event)

    async def _tell_interrupted(self, deployment: Deployment, engine: Engine) -> None:
        """It was started, is not ready and does not run: while the peer was down, or its actor was."""
        ended = await self._house.runtime.wait(self._id)
        if ended.code is not None:
            fault = engine.explain(ended)
            await self._fail(deployment, fault.code, fault.reason, fault.fix, ended)
            return
        await self._fail(
            deployment,
            "INTERRUPTED",
            "the peer restarted while the model loaded, and its engine did not survive that",
            "deploy the model again",
            ended,
        )

    async def _without_engine(self, deployment: Deployment) -> None:
        """The peer was started again without the engine that serves it."""
        await self._stop(deployment)
        reason = f"this peer has no engine {deployment.engine} any more"
        fix = "deploy with an engine that get-hardware-state lists"
        if deployment.was_ready:
            note = await self._memory_note(deployment)
            await self._tell(deployment, e.DeploymentEnded(self._id, f"{reason}; {fix}", memory_note=note))
        else:
            await self._fail(deployment, "ENGINE_UNAVAILABLE", reason, fix)

    async def _stop_and_tell(self, deployment: Deployment, end: End) -> None:
        self._leave()
        await self._stop(deployment)
        note = await self._memory_note(deployment)
        undeploy = await self._ender_of(deployment)
        facts = [] if undeploy is None else [undeployed(undeploy, note)]
        reason = end.reason or self._why_ended(deployment, undeploy)
        if reason is not None:
            ended = e.DeploymentEnded(self._id, reason, memory_note=note)
            facts.insert(0, self._fact(deployment, ended))
        await self._tell_facts(*facts)

    def _why_ended(self, deployment: Deployment, undeploy: Accepted | None) -> str | None:
        """What the deployment's own holder is told; None where the undeploy's own fact tells them."""
        if undeploy is None:
            return "it was ended by the owner of this machine"
        if undeploy.holder != deployment.holder:
            return "it was undeployed by a key that was approved for everybody's workloads"
        if deployment.command in self._house.store.world.unfinished:
            return "it was undeployed before it was ready"
        return None

    async def _stop_then_fail(self, deployment: Deployment, fault: EngineFault) -> None:
        output = await self._last_lines()
        await self._stop(deployment)
        await self._fail(deployment, fault.code, fault.reason, fault.fix, Exit(None, output))

    async def _fail(
        self, deployment: Deployment, code: str, reason: str, fix: str, ended: Exit | None = None
    ) -> None:
        note = await self._memory_note(deployment)
        if code == UNAVAILABLE:
            # Nobody knows whether it was started.
            note = not_waited_for(deployment, is_gone=False) or UNSET
        event = e.DeploymentFailed(
            deployment=self._id,
            code=code,
            reason=reason,
            fix=fix,
            exit_code=UNSET if ended is None else ended.code,
            output=UNSET if ended is None else ended.output,
            memory_note=note,
        )
        await self._tell(deployment, event)
        if code == UNAVAILABLE:
            # If it was after all, it is ended when that can be done.
            self._house.workers.spawn(sweep_spec(self._house, self._id))

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

    def _ready(self, deployment: Deployment, served: Served, load_ms: int | UnsetType) -> e.DeploymentReady:
        return e.DeploymentReady(
            deployment=self._id,
            model=deployment.model,
            engine=deployment.engine,
            device=deployment.device,
            context_tokens=UNSET if served.context_tokens is None else served.context_tokens,
            load_ms=load_ms,
            note=UNSET if served.note is None else served.note,
        )
