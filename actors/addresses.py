"""Where ready deployments are reached: written by each deployment's actor, read by prompts."""

import trio

from adapters.engine.port import Engine
from adapters.runtime.port import Handle


class Addresses:
    """Live handles by deployment. Not state: after a restart each actor publishes its own again."""

    def __init__(self) -> None:
        self._handles: dict[str, tuple[Engine, Handle]] = {}
        self._changed = trio.Event()

    def publish(self, deployment: str, engine: Engine, handle: Handle) -> None:
        """Prompts may be sent there from now on."""
        self._handles[deployment] = (engine, handle)
        self._wake()

    def withdraw(self, deployment: str) -> None:
        """No more prompts are sent there; those that wait for it look at the fold again."""
        self._handles.pop(deployment, None)
        self._wake()

    def get(self, deployment: str) -> tuple[Engine, Handle] | None:
        """Where it is reached, if it is."""
        return self._handles.get(deployment)

    async def wait_changed(self) -> None:
        """Wait until some address was published or withdrawn."""
        await self._changed.wait()

    def _wake(self) -> None:
        changed, self._changed = self._changed, trio.Event()
        changed.set()
