"""What an engine's events say of a peer's containers."""

from typing import Any

import pytest

from adapters.runtime.docker.events import Happenings, read_event
from adapters.runtime.docker.faults import BadAnswer, EngineGone
from adapters.runtime.docker.labels import labels_of
from adapters.runtime.docker.lines import JsonLines
from adapters.runtime.port import Container, EngineEvent, RuntimeUnavailable, WorkloadSpec

LABELS = labels_of(WorkloadSpec("job-1", "h-1", Container("i")), "p-1")


def told(action: str, **attributes: str) -> dict[str, Any]:
    about = {**LABELS, "image": "i", "name": "bp-p-1-job-1", **attributes}
    return {"Type": "container", "Action": action, "Actor": {"ID": "1", "Attributes": about}}


@pytest.mark.parametrize(
    ("line", "event"),
    [
        (told("oom"), EngineEvent("job-1", "oom")),
        (told("die", exitCode="137"), EngineEvent("job-1", "die", 137)),
        (told("die", exitCode=""), EngineEvent("job-1", "die")),
        (told("start"), None),
        (told("die", name="somebody-elses"), None),
        (told("die", **{key: "p-2" for key in LABELS if key.endswith("instance")}), None),
        ({"Action": "die"}, None),
        ({"Action": "die", "Actor": {"Attributes": None}}, None),
        ({}, None),
    ],
)
def test_an_event_is_one_of_this_peers_containers_or_nothing(
    line: dict[str, Any], event: EngineEvent | None
) -> None:
    assert read_event(line, "p-1") == event


class Broken:
    """A stream that ends so."""

    def __init__(self, end: Exception) -> None:
        self._end = end

    def __aiter__(self) -> "Broken":
        return self

    async def __anext__(self) -> bytes:
        raise self._end


@pytest.mark.parametrize(
    "end", [StopAsyncIteration(), EngineGone("went", fix="", may_have_acted=True), BadAnswer("no JSON")]
)
async def test_an_engine_that_tells_no_more_is_no_silent_engine(end: Exception) -> None:
    with pytest.raises(RuntimeUnavailable):
        await anext(Happenings(JsonLines(Broken(end)), "p-1"))
