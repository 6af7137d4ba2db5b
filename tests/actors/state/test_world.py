"""The fold against a model that only counts, and against itself read back from the log (F37)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs
import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from actors.messages import events as e
from actors.messages.commands import (
    COMPLETES,
    Accepted,
    DeployModel,
    Prompt,
    RevokeAgent,
    Turn,
    UndeployModel,
    UnknownCommand,
)
from actors.messages.envelope import EnvelopeEncoder, Fact, Head
from actors.messages.times import time_text
from actors.state.world import Deployment, World

HOLDERS = ("h-a", "h-b", "h-c")
DEVICES = ("cpu", "GPU-1")
START_MS = 1_796_000_000_000

ENCODER = EnvelopeEncoder("urn:test", {})
decode_head = msgspec.json.Decoder(Head).decode


def replayed(told: list[tuple[Fact, int]], kept: list[Accepted]) -> World:
    """What a restart makes of the log: its lines, and the commands that were kept."""
    world = World()
    for accepted in kept:
        world.remember(accepted)
    for seq, (fact, ms) in enumerate(told):
        world.replay(decode_head(ENCODER.line(fact, seq, ms)))
    world.settle()
    return world


def picture(world: World) -> dict[str, Any]:
    """Everything a world says, to compare."""
    return {
        "deployments": {
            d.id: (attrs.asdict(d, recurse=False), d.phase, d.since, d.started, d.was_ready)
            for d in world.deployments.values()
        },
        "unfinished": set(world.unfinished),
        "promised": world.promised,
        "told": world.events_told,
        "holdings": {holder: world.holding(holder) for holder in HOLDERS},
    }


def size_of(command: Accepted) -> int:
    """What a deploy asks for."""
    assert isinstance(command.body, DeployModel)
    return command.body.memory_bytes


@attrs.define
class Life:
    """What the model knows of one deployment that lives."""

    command: Accepted
    undeploy: Accepted | None = None
    started: bool = False
    ready: bool = False


class WorldAgainstModel(RuleBasedStateMachine):
    """Commands and facts in any order that can happen; the model holds a list and adds up."""

    @initialize()
    def begin(self) -> None:
        self.world = World()
        self.lives: dict[str, Life] = {}
        self.open: dict[str, Accepted] = {}
        self.kept: list[Accepted] = []
        self.waiting: list[Accepted] = []
        """Accepted, and the disk has not answered yet."""
        self.told: list[tuple[Fact, int]] = []
        self.number = 0

    def _accept(self, body: Any, holder: str, **more: Any) -> Accepted:
        self.number += 1
        accepted = Accepted(
            id=f"cmd-{self.number}",
            holder=holder,
            correlation=f"corr-{self.number}",
            at=time_text(START_MS + self.number),
            body=body,
            **more,
        )
        self.world.accept(accepted)
        self.waiting.append(accepted)
        self.open[accepted.id] = accepted
        return accepted

    def _tell(self, event: Any, cause: Accepted | None) -> None:
        self.number += 1
        holder, correlation, causation = (
            (None, None, None) if cause is None else (cause.holder, cause.correlation, cause.id)
        )
        fact = Fact(event, holder, correlation, causation)
        ms = START_MS + self.number
        self.world.apply(fact, time_text(ms))
        self.told.append((fact, ms))
        if cause is not None and fact.type in COMPLETES[cause.type]:
            self.open.pop(cause.id, None)

    def _is_kept(self, accepted: Accepted) -> bool:
        return accepted not in self.waiting

    def _living(self, wanted: Any) -> list[str]:
        return [name for name, life in self.lives.items() if self._is_kept(life.command) and wanted(life)]

    @rule(holder=st.sampled_from(HOLDERS), device=st.sampled_from(DEVICES), size=st.integers(1, 1 << 40))
    def deploy(self, holder: str, device: str, size: int) -> None:
        body = DeployModel("m", "llamacpp", size)
        subject = f"dep-{self.number}"
        accepted = self._accept(body, holder, subject=subject, device=device, device_uuid=device)
        self.lives[subject] = Life(accepted)

    @precondition(lambda self: any(life.undeploy is None for life in self.lives.values()))
    @rule(data=st.data(), holder=st.sampled_from(HOLDERS))
    def undeploy(self, data: st.DataObject, holder: str) -> None:
        free = [name for name, life in self.lives.items() if life.undeploy is None]
        name = data.draw(st.sampled_from(free))
        self.lives[name].undeploy = self._accept(UndeployModel(name), holder)

    @precondition(lambda self: self._living(lambda life: life.ready))
    @rule(data=st.data())
    def prompt(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self._living(lambda life: life.ready)))
        self._accept(Prompt(name, (Turn("user", "x"),)), self.lives[name].command.holder)

    @rule(holder=st.sampled_from(HOLDERS))
    def give_key_back(self, holder: str) -> None:
        self._accept(RevokeAgent(), holder)

    @precondition(lambda self: self.waiting)
    @rule()
    def disk_keeps_all(self) -> None:
        self.kept += self.waiting
        self.waiting.clear()

    @precondition(lambda self: self.waiting)
    @rule()
    def disk_keeps_none(self) -> None:
        for accepted in self.waiting:
            self.world.withdraw(accepted)
            self.open.pop(accepted.id, None)
            if isinstance(accepted.body, DeployModel):
                assert accepted.subject
                self.lives.pop(accepted.subject, None)
            if isinstance(accepted.body, UndeployModel):
                life = self.lives.get(accepted.body.deployment)
                if life is not None:
                    life.undeploy = None
        self.waiting.clear()

    @precondition(lambda self: self._living(lambda life: not life.started))
    @rule(data=st.data())
    def starts(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self._living(lambda life: not life.started)))
        cause = self.lives[name].command
        assert isinstance(cause.body, DeployModel)
        assert cause.device
        self._tell(
            e.DeploymentStarted(
                name,
                "m",
                "llamacpp",
                cause.device,
                cause.device,
                cause.body.memory_bytes,
                "process",
                cause.holder,
            ),
            cause,
        )
        self.lives[name].started = True

    @precondition(lambda self: self._living(lambda life: life.started))
    @rule(data=st.data(), percent=st.none() | st.integers(0, 100))
    def loads(self, data: st.DataObject, percent: int | None) -> None:
        name = data.draw(st.sampled_from(self._living(lambda life: life.started)))
        event = e.WeightsLoading(name) if percent is None else e.WeightsLoading(name, percent)
        self._tell(event, self.lives[name].command)

    @precondition(lambda self: self._living(lambda life: life.started and not life.ready))
    @rule(data=st.data())
    def gets_ready(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self._living(lambda life: life.started and not life.ready)))
        self._tell(e.DeploymentReady(name, "m", "llamacpp", "cpu"), self.lives[name].command)
        self.lives[name].ready = True

    @precondition(lambda self: self._living(lambda life: True))
    @rule(data=st.data(), how=st.sampled_from(["failed", "ended", "memory"]))
    def ends(self, data: st.DataObject, how: str) -> None:
        name = data.draw(st.sampled_from(self._living(lambda life: True)))
        event: Any = {
            "failed": e.DeploymentFailed(name, "X", "reason", "fix"),
            "ended": e.DeploymentEnded(name, "reason"),
            "memory": e.OutOfMemory(name, "reason", "fix"),
        }[how]
        self._tell(event, self.lives.pop(name).command)

    @precondition(lambda self: self._open_kept(UndeployModel))
    @rule(data=st.data())
    def undeployed(self, data: st.DataObject) -> None:
        cause = data.draw(st.sampled_from(self._open_kept(UndeployModel)))
        assert isinstance(cause.body, UndeployModel)
        life = self.lives.get(cause.body.deployment)
        if life is not None and not self._is_kept(life.command):
            return
        if life is not None and life.command.id in self.open:
            self._tell(e.DeploymentEnded(cause.body.deployment, "before it was ready"), life.command)
        self.lives.pop(cause.body.deployment, None)
        self._tell(e.Undeployed(cause.body.deployment), cause)

    @precondition(lambda self: self._open_kept(Prompt))
    @rule(data=st.data(), tokens=st.none() | st.integers(0, 1 << 20), fails=st.booleans())
    def answered(self, data: st.DataObject, tokens: int | None, fails: bool) -> None:
        cause = data.draw(st.sampled_from(self._open_kept(Prompt)))
        assert isinstance(cause.body, Prompt)
        name = cause.body.deployment
        if fails:
            self._tell(e.PromptFailed(name, "X", "reason", "fix"), cause)
        else:
            self._tell(e.PromptAnswered(name, "text", "m", tokens, tokens), cause)

    @precondition(lambda self: self._open_kept(object))
    @rule(data=st.data())
    def fails(self, data: st.DataObject) -> None:
        cause = data.draw(st.sampled_from(self._open_kept(object)))
        self._tell(e.CommandFailed(cause.id, cause.type, "X", "reason", "fix"), cause)
        if isinstance(cause.body, DeployModel):
            assert cause.subject
            self.lives.pop(cause.subject, None)
        if isinstance(cause.body, UndeployModel) and cause.body.deployment in self.lives:
            life = self.lives[cause.body.deployment]
            if life.undeploy is cause:
                life.undeploy = None

    def _open_kept(self, kind: type) -> list[Accepted]:
        return [a for a in self.open.values() if isinstance(a.body, kind) and self._is_kept(a)]

    @invariant()
    def adds_up(self) -> None:
        sizes = Counter[str]()
        for life in self.lives.values():
            assert life.command.device
            sizes[life.command.device] += size_of(life.command)
        assert self.world.promised == dict(sizes)
        assert set(self.world.deployments) == set(self.lives)
        assert set(self.world.unfinished) == set(self.open)
        for holder in HOLDERS:
            held = {n: x for n, x in self.lives.items() if x.command.holder == holder}
            holding = self.world.holding(holder)
            assert holding.deployments == set(held)
            assert holding.memory_bytes == sum(size_of(x.command) for x in held.values())

    @invariant()
    def phases_follow(self) -> None:
        for name, life in self.lives.items():
            deployment = self.world.deployments[name]
            assert (deployment.phase == "ending") == (life.undeploy is not None)
            assert deployment.was_ready == life.ready
            assert deployment.started == life.started

    @invariant()
    def a_restart_makes_the_same(self) -> None:
        again = replayed(self.told, self.kept)
        for accepted in self.waiting:
            again.accept(accepted)
        assert picture(again) == picture(self.world)


TestWorldAgainstModel = WorldAgainstModel.TestCase
TestWorldAgainstModel.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


names = st.sampled_from(["dep-known", "dep-unknown", ""])
text = st.text(max_size=5)
whole = st.none() | st.integers(-(1 << 62), 1 << 62)
event = st.one_of(
    st.builds(e.DeploymentStarted, names, text, text, text, text, st.integers(0, 1 << 50), text, text),
    st.builds(e.WeightsLoading, names, st.integers()),
    st.builds(e.DeploymentReady, names, text, text, text),
    st.builds(e.DeploymentFailed, names, text, text, text),
    st.builds(e.DeploymentEnded, names, text, whole),
    st.builds(e.OutOfMemory, names, text, text),
    st.builds(e.Undeployed, names),
    st.builds(e.PromptAnswered, names, text, text, whole, whole),
    st.builds(e.PromptFailed, names, text, text, text),
    st.builds(e.CommandFailed, text, text, text, text, text),
    st.builds(e.AgentRevoked, text, text),
)
cause = st.sampled_from([None, "cmd-deploy", "cmd-undeploy", "cmd-unknown", "cmd-other"])


def world_with_one() -> World:
    """A deployment that is ready, its undeploy, and a command of another version."""
    world = World()
    world.accept(
        Accepted("cmd-deploy", "h-a", "c", "t", DeployModel("m", "llamacpp", 5), "dep-known", "cpu", "cpu")
    )
    world.accept(Accepted("cmd-undeploy", "h-a", "c", "t", UndeployModel("dep-known")))
    world.accept(Accepted("cmd-unknown", "h-a", "c", "t", UnknownCommand("FlyAway")))
    return world


@given(st.lists(st.tuples(event, cause), max_size=12))
@settings(max_examples=100, deadline=None)
def test_no_told_fact_fails_the_fold_whatever_it_says(facts: list[tuple[Any, str | None]]) -> None:
    """Also facts about what nobody knows, twice, and out of order; told or read, they fold the same."""
    live, read = world_with_one(), world_with_one()
    for number, (fact, causation) in enumerate(facts):
        made = Fact(fact, "h-a", "c", causation)
        live.apply(made, time_text(START_MS))
        try:
            line = ENCODER.line(made, number, START_MS)
        except OverflowError:
            line = b""
        if line:
            read.replay(decode_head(line))
        assert all(left >= 0 for left in live.promised.values())
        assert sum(d.memory_bytes for d in live.deployments.values()) == sum(live.promised.values())
    assert picture(live) == picture(read)


json_value = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 40), 1 << 40) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)


@given(
    st.sampled_from([*(c.__name__ for c in e.Event.__args__), "FromTheFuture"]),
    st.dictionaries(st.sampled_from(["deployment", "memory_bytes", "prompt_tokens"]), json_value)
    | json_value,
)
def test_no_line_of_another_version_fails_the_fold(kind: str, data: Any) -> None:
    """Whatever its data: it says nothing to this fold, and stays readable."""
    world = world_with_one()
    world.replay(
        Head(id="evt-1", type=kind, time="t", causationid=None, data=msgspec.Raw(msgspec.json.encode(data)))
    )
    assert all(isinstance(d, Deployment) for d in world.deployments.values())
    assert world.events_told[kind] == 1


def test_a_deploy_of_another_shape_completes_by_the_facts_it_always_did() -> None:
    """After an upgrade, what had completed is not told to have failed."""
    world = World()
    world.remember(Accepted("cmd-1", "h-a", "c", "t", UnknownCommand("DeployModel"), "dep-1"))
    world.replay(
        decode_head(
            ENCODER.line(Fact(e.DeploymentReady("dep-1", "m", "x", "cpu"), "h-a", "c", "cmd-1"), 1, 1)
        )
    )
    world.settle()
    assert not world.unfinished


def test_an_unknown_command_completes_in_its_failure_alone() -> None:
    world = world_with_one()
    accepted = world.unfinished["cmd-unknown"]
    assert accepted.type == "FlyAway"
    world.apply(Fact(e.DeploymentReady("dep-9", "m", "x", "cpu"), "h-a", "c", "cmd-unknown"), "t")
    assert "cmd-unknown" in world.unfinished
    world.apply(
        Fact(e.CommandFailed("cmd-unknown", "FlyAway", "X", "r", "f"), "h-a", "c", "cmd-unknown"), "t"
    )
    assert "cmd-unknown" not in world.unfinished


def test_a_deployment_is_ending_from_the_moment_its_undeploy_is_accepted() -> None:
    """Easily missed 16; and it is what it was when the disk did not keep the undeploy."""
    world = World()
    world.accept(Accepted("d", "h-a", "c", "t0", DeployModel("m", "llamacpp", 5), "dep-1", "cpu", "cpu"))
    started = e.DeploymentStarted("dep-1", "m", "llamacpp", "cpu", "cpu", 5, "process", "h-a")
    world.apply(Fact(started, "h-a", "c", "d"), "t1")
    world.apply(Fact(e.WeightsLoading("dep-1"), "h-a", "c", "d"), "t2")
    undeploy = Accepted("u", "h-b", "c2", "t3", UndeployModel("dep-1"))
    world.accept(undeploy)
    deployment = world.deployments["dep-1"]
    assert (deployment.phase, deployment.since) == ("ending", "t3")
    world.withdraw(undeploy)
    assert (deployment.phase, deployment.since) == ("loading", "t2")


def test_accepting_twice_reserves_once() -> None:
    world = World()
    accepted = Accepted("d", "h-a", "c", "t", DeployModel("m", "llamacpp", 5), "dep-1", "cpu", "cpu")
    world.accept(accepted)
    world.accept(accepted)
    assert world.promised == {"cpu": 5}
    assert world.holding("h-a").memory_bytes == 5


def test_counts_what_prompts_used() -> None:
    world = world_with_one()
    world.apply(Fact(e.PromptAnswered("dep-known", "hi", "m", 3, None)), "t")
    world.apply(Fact(e.PromptAnswered("dep-known", "hi", "m", 4, 5)), "t")
    world.apply(Fact(e.PromptFailed("dep-known", "X", "r", "f")), "t")
    known = world.deployments["dep-known"]
    assert (known.prompts_answered, known.prompts_failed) == (2, 1)
    assert (known.prompt_tokens, known.completion_tokens) == (7, 5)


def test_counts_the_prompts_in_flight() -> None:
    world = world_with_one()
    world.accept(Accepted("p", "h-a", "c", "t", Prompt("dep-known", (Turn("user", "x"),))))
    assert world.prompts_in_flight() == 1
    assert [a.id for a in world.undeploys_of("dep-known")] == ["cmd-undeploy"]


def test_a_stage_is_never_gone_back_from() -> None:
    """An engine that was started again loads anew, and what was told stays true."""
    world = world_with_one()
    for fact in (e.DeploymentReady("dep-known", "m", "x", "cpu"), e.WeightsLoading("dep-known")):
        world.apply(Fact(fact, "h-a", "c", "cmd-deploy"), "t")
    assert world.deployments["dep-known"].was_ready


def test_the_undeploy_that_came_first_ends_it() -> None:
    world = world_with_one()
    world.accept(Accepted("cmd-late", "h-a", "c", "t", UndeployModel("dep-known")))
    ended_by = world.deployments["dep-known"].ended_by
    assert ended_by is not None
    assert ended_by.id == "cmd-undeploy"
