"""What the engine does to this peer's containers on its own (F19)."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, Literal, Self

import trio

from adapters.runtime.docker.client import DockerClient
from adapters.runtime.docker.faults import DockerFault
from adapters.runtime.docker.labels import INSTANCE, workload_of
from adapters.runtime.docker.lines import JsonLines
from adapters.runtime.port import EngineEvent, RuntimeUnavailable

ANSWER_SECONDS: Final = 30.0
MAX_EVENT: Final = 1024 * 1024
"""An event carries the labels of its container, its image's among them: see `MAX_IMAGE_TEXT`."""
_KINDS: Final[dict[str, Literal["oom", "die"]]] = {"oom": "oom", "die": "die"}


class Happenings:
    """The events of one peer's containers in a stream of the engine's.

    Raises, while it is iterated:
        RuntimeUnavailable: the engine tells no more.
    """

    def __init__(self, lines: JsonLines, instance: str) -> None:
        self._lines = lines
        self._instance = instance

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EngineEvent:
        while True:
            try:
                line = await anext(self._lines)
            except StopAsyncIteration:
                raise RuntimeUnavailable("the container engine ended its list of events") from None
            except DockerFault as fault:
                raise RuntimeUnavailable(str(fault)) from fault
            event = read_event(line, self._instance)
            if event is not None:
                return event


@asynccontextmanager
async def listen(client: DockerClient, instance: str) -> AsyncIterator[AsyncIterator[EngineEvent]]:
    """The events from now on.

    Raises:
        RuntimeUnavailable: the engine does not answer.
    """
    filters = {"type": ["container"], "event": list(_KINDS), "label": [f"{INSTANCE}={instance}"]}
    params = {"filters": json.dumps(filters)}
    async with AsyncExitStack() as stack:
        happenings: Happenings | None = None
        try:
            with trio.move_on_after(ANSWER_SECONDS):
                pieces = await stack.enter_async_context(client.stream("GET", "/events", params=params))
                happenings = Happenings(JsonLines(pieces, most=MAX_EVENT), instance)
        except DockerFault as fault:
            raise RuntimeUnavailable(str(fault)) from fault
        if happenings is None:
            raise RuntimeUnavailable("the container engine does not answer")
        yield happenings


def read_event(line: Mapping[str, Any], instance: str) -> EngineEvent | None:
    """What a line of the engine's events says of this peer's containers; None for anything else."""
    actor = line.get("Actor")
    attributes = actor.get("Attributes") if isinstance(actor, dict) else None
    kind = _KINDS.get(str(line.get("Action")))
    if kind is None or not isinstance(attributes, dict):
        return None
    workload = workload_of(attributes, str(attributes.get("name", "")), instance)
    if workload is None:
        return None
    code = attributes.get("exitCode")
    return EngineEvent(workload, kind, int(code) if isinstance(code, str) and code.isdecimal() else None)
