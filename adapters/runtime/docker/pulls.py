"""One pull: its stream read to the end, held to its limits, given up by dropping it (F22).

The engine answers 200 and puts what goes wrong into the stream, so nothing is believed before its last line,
and then the image is looked up (moby/moby#8844).
"""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import attrs
import orjson
import trio

from adapters.images.port import (
    EngineDown,
    ImageFault,
    OnProgress,
    PullFailed,
    RegistryToken,
)
from adapters.images.reference import Reference
from adapters.runtime.docker.client import DockerClient
from adapters.runtime.docker.faults import BadAnswer, EngineError, EngineGone
from adapters.runtime.docker.lines import JsonLines
from adapters.runtime.docker.progress import PullTracker
from adapters.runtime.docker.registry_faults import pull_fault
from adapters.runtime.docker.room import Gauge

STALL_SECONDS: Final = 300.0
"""How long a pull may say nothing (F20)."""


@attrs.define(eq=False)
class Pull:
    """A pull under way, by the reference it fetches.

    `patience` ends it when nothing is heard; `is_wanted` says that another one of the same image came to its
    end since it began.
    """

    reference: str
    tracker: PullTracker = attrs.field(factory=PullTracker)
    patience: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    is_wanted: bool = False


@attrs.define(eq=False)
class Pulls:
    """The pulls under way at one engine: they share what they fetch, and wait for each other's turns.

    Args:
        stall_seconds: how long the engine may say nothing of one.
    """

    stall_seconds: float = STALL_SECONDS
    _live: list[Pull] = attrs.field(factory=list, init=False)

    @contextmanager
    def one(self, reference: str) -> Iterator[Pull]:
        """Be one of them."""
        pull = Pull(reference)
        self._live.append(pull)
        try:
            yield pull
        finally:
            self._live.remove(pull)

    def heard(self, pull: Pull) -> None:
        """The engine said something of it.

        One whose every part waits for a turn (an engine fetches three at once) is silent for no fault of its
        registry's: it stays as long as the others get on.
        """
        until = trio.current_time() + self.stall_seconds
        for one in self._live:
            if one is pull or one.tracker.is_waiting:
                one.patience.deadline = until

    def succeed(self, pull: Pull) -> None:
        """Its image is somebody's now: no other pull of it may take it back."""
        for other in self._others(pull):
            other.is_wanted = True

    def may_take_back(self, pull: Pull) -> bool:
        """Whether nobody else wants what it fetched."""
        return not pull.is_wanted and not self._others(pull)

    def _others(self, pull: Pull) -> list[Pull]:
        return [one for one in self._live if one is not pull and one.reference == pull.reference]


@attrs.define(eq=False)
class Puller:
    """Fetches one image by its digest.

    Args:
        room_seconds: how often the disk is read.
    """

    client: DockerClient
    pulls: Pulls
    pull: Pull
    asked: Reference
    token: RegistryToken | None
    gauge: Gauge | None
    room_seconds: float

    async def run(self, on_progress: OnProgress) -> ImageFault | None:
        """Pull to the end; what went wrong, None when the engine says that it is all there."""
        over_limit: ImageFault | None = None
        ended: ImageFault | None = None

        async def watch(gauge: Gauge) -> None:
            nonlocal over_limit
            while over_limit is None:
                await trio.sleep(self.room_seconds)
                over_limit = await gauge.read(self.pull.tracker.known_bytes)
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            if self.gauge is not None:
                nursery.start_soon(watch, self.gauge)
            ended = await self._read(on_progress)
            nursery.cancel_scope.cancel()
        return over_limit or ended

    async def _read(self, on_progress: OnProgress) -> ImageFault | None:
        parameters = {"fromImage": self.pull.reference}
        try:
            self.pull.patience.deadline = trio.current_time() + self.pulls.stall_seconds
            with self.pull.patience:
                async with self.client.stream(
                    "POST", "/images/create", params=parameters, headers=authorisation(self.token)
                ) as pieces:
                    return await self._read_lines(JsonLines(pieces), on_progress)
        except EngineError as error:
            return pull_fault(self.asked, error.status, error.message, token=self.token)
        except BadAnswer as error:
            return PullFailed(f"the pull of {self.asked.text} cannot be followed: {error}", fix="try again")
        except EngineGone as error:
            return EngineDown(error.reason, fix=error.fix)
        return PullFailed(
            f"the pull of {self.asked.text} stalled: the container engine said nothing of it for "
            f"{self.pulls.stall_seconds:g} s",
            fix="check the machine's way to the registry, and try again",
        )

    async def _read_lines(self, lines: JsonLines, on_progress: OnProgress) -> ImageFault | None:
        async for line in lines:
            self.pulls.heard(self.pull)
            if self.pull.tracker.take(line):
                on_progress(self.pull.tracker.progress())
                fault = self.gauge and self.gauge.judge(None, self.pull.tracker.known_bytes)
                if fault:
                    return fault
            if self.pull.tracker.error is not None:
                return pull_fault(self.asked, None, self.pull.tracker.error, token=self.token)
        if self.pull.tracker.is_done:
            return None
        return PullFailed(
            f"the pull of {self.asked.text} ended, and the container engine did not say that it is done",
            fix="try again; the engine's log (journalctl -u docker) may say why",
        )


def authorisation(token: RegistryToken | None) -> dict[str, str]:
    """The header by which the engine shows a registry a token. Without its padding the engine ignores it."""
    if token is None:
        return {}
    said = orjson.dumps({"registrytoken": token.token})
    return {"X-Registry-Auth": base64.urlsafe_b64encode(said).decode("ascii")}
