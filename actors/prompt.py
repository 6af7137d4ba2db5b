"""A prompt: waits its turn, asks the engine, tells the answer whole (F23).

Sixteen at a time on one peer, in the order they were accepted; ten minutes each from its turn.
"""

import trio

from actors.ending import named
from actors.house import House
from actors.kernel.child import ChildSpec
from actors.kernel.mailbox import Mailbox
from actors.messages import events as e
from actors.messages.commands import Accepted, Prompt
from actors.messages.envelope import Fact
from actors.turns import Turn, Turns
from adapters.engine.port import Answer, Chat, Engine, EngineFault, Message
from adapters.runtime.port import Handle

AT_ONCE = 16
"""Prompts in flight on a peer (seed: sixteen at a time per peer)."""

GONE = (
    "DEPLOYMENT_ENDED",
    "the deployment ended before it answered",
    "deploy the model again and prompt that",
)


def prompt_spec(house: House, accepted: Accepted, turns: Turns) -> ChildSpec:
    """How a prompt's actor is supervised. `turns` is shared by all prompts of the peer.

    Its place in the line is taken now, in the order of acceptance; after a crash it lines up again.
    """
    first = [turns.line_up()]

    def make() -> PromptActor:
        return PromptActor(house, accepted, first.pop() if first else turns.line_up())

    async def exhausted(crash: BaseException) -> None:
        await PromptActor(house, accepted).give_up(crash)

    return ChildSpec(name=f"prompt {accepted.id}", make=make, exhausted=exhausted, capacity=0)


class PromptActor:
    """One prompt from its acceptance to its answer."""

    def __init__(self, house: House, accepted: Accepted, turn: Turn | None = None) -> None:
        assert isinstance(accepted.body, Prompt)
        self._house = house
        self._accepted = accepted
        self._prompt = accepted.body
        self._turn = turn

    async def run(self, inbox: Mailbox[object]) -> None:  # noqa: ARG002 - nobody writes to a prompt
        """Answer or fail, and tell it."""
        assert self._turn is not None
        async with self._turn:
            if self._is_open():
                await self._take_turn()

    async def give_up(self, crash: BaseException) -> None:
        """Fail it after repeated crashes."""
        if self._is_open():
            reason = f"this peer failed over it: {named(crash)}"
            await self._tell(self._failed("INTERNAL", reason, "send it again"))

    def _is_open(self) -> bool:
        return self._accepted.id in self._house.store.world.unfinished

    async def _take_turn(self) -> None:
        outcome: e.PromptAnswered | e.PromptFailed = self._failed(
            "PROMPT_TIMEOUT",
            f"the engine did not answer within {self._house.bounds.prompt:.0f} s",
            "ask for fewer tokens (max_tokens), or undeploy and deploy again if it hangs",
        )
        with trio.move_on_after(self._house.bounds.prompt):
            outcome = await self._attempt()
        # Told outside the bound: a fact cut off while it is made durable would be followed by its contrary.
        await self._tell(outcome)

    async def _attempt(self) -> e.PromptAnswered | e.PromptFailed:
        prompt = self._prompt
        chat = Chat(
            messages=tuple(Message(m.role, m.content) for m in prompt.messages),
            max_tokens=prompt.max_tokens,
            temperature=prompt.temperature,
            stop=prompt.stop,
        )
        while True:
            reached = await self._address()
            if reached is None:
                return self._failed(*GONE)
            outcome = await self._ask(*reached, chat)
            if isinstance(outcome, EngineFault):
                if self._house.addresses.get(prompt.deployment) is None:
                    return self._failed(*GONE)
                return self._failed(outcome.code, outcome.reason, outcome.fix)
            if outcome is not None:
                return e.PromptAnswered(
                    deployment=prompt.deployment,
                    content=outcome.content,
                    model=outcome.model,
                    prompt_tokens=outcome.prompt_tokens,
                    completion_tokens=outcome.completion_tokens,
                    finish_reason=outcome.finish_reason,
                )

    async def _ask(self, engine: Engine, handle: Handle, chat: Chat) -> Answer | EngineFault | None:
        """Ask the engine; None when its address was withdrawn first.

        The question is dropped then: an engine that is asked to end waits for what it still answers.
        """
        outcome: Answer | EngineFault | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cut_when_withdrawn, handle, nursery.cancel_scope)
            try:
                outcome = await engine.answer(handle, chat)
            except EngineFault as fault:
                outcome = fault
            nursery.cancel_scope.cancel("answered")
        return outcome

    async def _cut_when_withdrawn(self, handle: Handle, asking: trio.CancelScope) -> None:
        addresses = self._house.addresses
        while True:
            reached = addresses.get(self._prompt.deployment)
            if reached is None or reached[1] is not handle:
                asking.cancel("the deployment is ending")
                return
            await addresses.wait_changed()

    async def _address(self) -> tuple[Engine, Handle] | None:
        """Where the deployment is reached, once its actor has found it; None when it ended."""
        while True:
            reached = self._house.addresses.get(self._prompt.deployment)
            if reached is not None:
                return reached
            deployment = self._house.store.world.deployments.get(self._prompt.deployment)
            if deployment is None or deployment.phase != "ready":
                return None
            await self._house.addresses.wait_changed()

    def _failed(self, code: str, reason: str, fix: str) -> e.PromptFailed:
        return e.PromptFailed(self._prompt.deployment, code, reason, fix)

    async def _tell(self, event: e.PromptAnswered | e.PromptFailed) -> None:
        accepted = self._accepted
        await self._house.store.events.tell(Fact(event, accepted.holder, accepted.correlation, accepted.id))
