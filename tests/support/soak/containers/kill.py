"""One kill: the work brought to its phase, the victim killed and started again, and what was told since."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import attrs
import trio

from tests.support.docker.proxy import Fault, Hold, Mute
from tests.support.soak.containers.cases import PULLS
from tests.support.soak.containers.ground import HANG, Hung
from tests.support.soak.containers.left import what_is_wrong

if TYPE_CHECKING:
    from tests.support.soak.containers.cases import Case
    from tests.support.soak.containers.ground import Ground
    from tests.support.soak.history import Fact

MIB = 1 << 20
JOB_CODE = 7
START = "POST .*/containers/[^/]+/start"
SIGNAL = "POST .*/containers/[^/]+/kill"
REMOVE = "DELETE .*/containers/"

DEPLOY_ENDS = frozenset(
    {"DeploymentReady", "DeploymentFailed", "DeploymentEnded", "OutOfMemory", "CommandFailed"}
)
JOB_ENDS = frozenset({"JobFinished", "JobFailed", "JobStopped", "CommandFailed"})


@attrs.frozen
class Came:
    """What came of a kill.

    Args:
        end: the fact that the work ended with, or that it is ready.
        problems: what was wrong.
    """

    end: str
    problems: list[str]


@attrs.define(eq=False)
class Kill:
    """Makes one. `name` is the work's own."""

    ground: Ground
    case: Case
    name: str
    command: str = ""
    ending: str = ""
    """The command that ends it, where it is ended by command before the kill."""

    async def run(self) -> Came:
        """Kill, and look what is left."""
        try:
            await self._reach()
            await self._die_and_return()
            end = await self._see_it_out()
            problems = self._judge(end)
            problems += await what_is_wrong(self.ground, self.name, forgetful=self.case.victim == "engine")
        except Hung as hung:
            return Came("", [f"{self.case}: {hung}"])
        return Came(end["type"], [f"{self.case}: {each}" for each in problems])

    @property
    def _is_job(self) -> bool:
        return self.case.work == "job"

    def _told(self) -> list[Fact]:
        return self.ground.caused_by(self.command)

    async def _reach(self) -> None:
        """Bring it to where it is to be killed, and hold it there."""
        ground, phase = self.ground, self.case.phase
        held: Fault | None = None
        if phase == "start of pull":
            held = ground.shelf.fault("(GET|HEAD) .*/manifests/", Hold())
        elif phase == "mid-pull":
            held = ground.shelf.fault("GET .*/blobs/", Hold(after=1000))
        elif phase == "created":
            held = ground.wire.fault(START, Hold())
        elif phase == "starting":
            held = ground.wire.fault(START, Mute())
        await self._send()
        if held is not None:
            await self._wait(held.reached, phase)
        if self.case.phase == "starting" and self._is_job:
            await self._wait(ground.runs.begun(self.name), "its program's start")
        if phase in ("running", "exiting"):
            await self._running()
        if self.case.way == "ended":
            await ground.wire.down()
            await trio.to_thread.run_sync(self._end_by_itself)
        elif self.case.is_over:
            pattern, kind = (SIGNAL, Mute()) if self.case.way == "stopping" else (REMOVE, Hold())
            at_the_end = ground.wire.fault(pattern, kind)
            if self._is_job and self.case.way == "removing":
                ground.runs.let_go(self.name)
            else:
                await self._end()
            await self._wait(at_the_end.reached, self.case.way)

    async def _send(self) -> None:
        ground = self.ground
        image = await ground.publish(self.case.work, self.name)
        if self._is_job:
            data: dict[str, Any] = {"image": image, "command": ground.runs.command(self.name, ground.gateway)}
            self.command = await ground.send("RunJob", data)
        else:
            data = {"model": "tiny", "engine": "ollama", "memory_bytes": 256 * MIB}
            self.command = await ground.send("DeployModel", data)

    async def _running(self) -> None:
        if self._is_job:
            await self._wait(self.ground.runs.begun(self.name), "its program's start")
            await self.ground.fact(self._told, ["JobStarted", *JOB_ENDS])
        else:
            await self.ground.fact(self._told, DEPLOY_ENDS)

    def _end_by_itself(self) -> None:
        engine = self.ground.engine
        (container,) = engine.containers()
        with engine.client(HANG) as client:
            if self._is_job:
                trio.from_thread.run_sync(self.ground.runs.let_go, self.name)
            else:
                client.post(f"/containers/{container['Id']}/kill").raise_for_status()
            client.post(f"/containers/{container['Id']}/wait").raise_for_status()

    async def _end(self) -> None:
        """End it by command."""
        started = {"JobStarted"} if self._is_job else {"DeploymentStarted"}
        name = "job" if self._is_job else "deployment"
        fact = await self.ground.fact(self._told, started)
        await self.ground.known(fact)
        kind = "StopJob" if self._is_job else "UndeployModel"
        self.ending = await self.ground.send(kind, {name: fact["data"][name]})

    async def _die_and_return(self) -> None:
        ground, case = self.ground, self.case
        if case.victim == "peer":
            await trio.to_thread.run_sync(ground.peer.kill)
            # What it had asked and was not passed on yet never comes now.
            await ground.wire.down()
            self._heal()
            if case.pause:
                # A job that runs ends while nobody is there to hear of it.
                ground.runs.let_go(self.name)
            await trio.sleep(case.pause)
            await ground.wire.up()
            if case.again:
                await self._die_in_a_start()
            await trio.to_thread.run_sync(ground.peer.start)
        elif case.victim == "engine":
            await ground.wire.down()
            await trio.to_thread.run_sync(ground.engine.kill)
            self._heal()
            await trio.sleep(case.pause)
            await trio.to_thread.run_sync(ground.engine.start)
            await ground.wire.up()
        else:
            await trio.to_thread.run_sync(ground.registry.kill)
            await ground.shelf.down()
            self._heal()
            await ground.wire.up()
            if case.way == "back":
                await trio.sleep(case.pause)
                await self._bring_the_registry_back()

    def _heal(self) -> None:
        self.ground.wire.heal()
        self.ground.shelf.heal()

    async def _bring_the_registry_back(self) -> None:
        await trio.to_thread.run_sync(self.ground.registry.start)
        await self.ground.shelf.up()

    async def _die_in_a_start(self) -> None:
        peer = self.ground.peer

        def start() -> None:
            # Killed before its line, most often.
            with contextlib.suppress(AssertionError, OSError):
                peer.start()

        before = peer.process
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, start)
            while peer.process is before:  # noqa: ASYNC110 - a thread starts it
                await trio.sleep(0.001)
            await trio.sleep(self.case.again)
            assert peer.process is not None
            peer.process.kill()
        await trio.to_thread.run_sync(peer.process.wait)

    async def _see_it_out(self) -> Fact:
        """Let it come to its end, end it where it goes on, and return its last fact, or that it was ready."""
        ground, case = self.ground, self.case
        if self._is_job:
            ground.runs.let_go(self.name)
            end = await ground.fact(self._told, JOB_ENDS)
        else:
            end = await self._see_deploy_out()
        if self.ending:
            kinds = {"JobStopped", "Undeployed", "CommandFailed"}
            completed = await ground.fact(lambda: ground.caused_by(self.ending), kinds)
            end = end if self._is_job else completed
        if case.victim == "registry" and case.way != "back":
            await self._bring_the_registry_back()
        return end

    async def _see_deploy_out(self) -> Fact:
        ground = self.ground
        end = await ground.fact(self._told, DEPLOY_ENDS)
        if end["type"] != "DeploymentReady" or self.ending:
            return end
        if "DeploymentEnded" in self.case.right_ends():
            return await ground.fact(self._told, DEPLOY_ENDS - {"DeploymentReady"})
        await ground.known(end)
        words = {
            "deployment": end["data"]["deployment"],
            "messages": [{"role": "user", "content": "Hi"}],
            "max_tokens": 2,
        }
        prompt = await ground.send("Prompt", words)
        kinds = ("PromptAnswered", "PromptFailed", "CommandFailed")
        answered = await ground.fact(lambda: ground.caused_by(prompt), kinds)
        if answered["type"] != "PromptAnswered":
            raise Hung(f"it is ready and does not answer: {answered['data']}")
        undeploy = await ground.send("UndeployModel", {"deployment": end["data"]["deployment"]})
        await ground.fact(lambda: ground.caused_by(undeploy), {"Undeployed", "CommandFailed"})
        return end

    def _judge(self, end: Fact) -> list[str]:
        kind, data = end["type"], end["data"]
        found = []
        if kind not in self.case.right_ends():
            found.append(f"ended with {kind} {data}, and {sorted(self.case.right_ends())} would be right")
        elif "code" in data and data["code"] not in self.case.right_codes():
            found.append(f"failed with {data['code']}: {data.get('reason')}")
        elif kind == "JobFinished" and data["exit_code"] != JOB_CODE:
            found.append(f"finished with {data['exit_code']}")
        if self._is_job:
            runs = self.ground.runs.told.count(self.name)
            has_run = kind == "JobFinished" or self.case.phase not in (*PULLS, "created")
            if runs != has_run:
                found.append(f"its program ran {runs} times, and {has_run:d} would be right")
        return found

    async def _wait(self, event: trio.Event, what: str) -> None:
        with trio.move_on_after(HANG):
            await event.wait()
            return
        raise Hung(f"{what} was not reached in {HANG:.0f} s; told: {[f['type'] for f in self._told()]}")
