"""Pages and cursors over a log that lived through anything: exactly what a plain loop finds, in order."""

from __future__ import annotations

import os
from pathlib import Path

import attrs
import orjson
import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.log import eventlog as module
from actors.log import index, keyrows, stretches
from actors.log.eventlog import EventLog
from actors.log.index import EventQuery
from actors.messages import events as e
from actors.messages.envelope import EnvelopeEncoder, Fact, Head
from actors.messages.times import time_text
from actors.rules.visibility import Reader
from adapters.clock.fake import FakeClock

BEGIN_MS = 1_796_000_000_000
EVENTS = (
    e.WeightsLoading("dep-1"),
    e.Undeployed("dep-1"),
    e.PromptFailed("dep-1", "CODE", "x" * 300, "fix"),
    e.AgentRevoked("h-1", "name"),
)
HOLDERS = ("h-1", "h-2", None)
CORRELATIONS = ("c-1", "c-2", None)
FACTS = st.builds(
    Fact, st.sampled_from(EVENTS), holder=st.sampled_from(HOLDERS), correlation=st.sampled_from(CORRELATIONS)
)
CLOCK = st.tuples(st.just("clock"), st.sampled_from([1000, -1000, 90_000_000, -90_000_000]))
TELL = st.tuples(st.just("tell"), st.lists(FACTS, min_size=3, max_size=12))
BREAK = st.one_of(
    st.tuples(st.just("reopen"), st.sampled_from(["urn:a", "urn:b"])),
    st.tuples(st.just("lose a day"), st.integers(0, 3)),
)
LIVES = st.lists(st.tuples(TELL, CLOCK, TELL, CLOCK, TELL, BREAK, CLOCK, TELL), min_size=1, max_size=3)
TIMES = st.one_of(
    st.integers(-3, 3).map(lambda seconds: time_text(BEGIN_MS + 1000 * seconds)),
    st.integers(-3, 3).map(lambda days: time_text(BEGIN_MS + 90_000_000 * days)),
)
READERS = st.builds(Reader, st.sampled_from(["h-1", "h-2", "h-3"]), st.booleans())
FILTERS = {
    "type": st.sampled_from([type(event).__name__ for event in EVENTS]),
    "correlation": st.sampled_from(["c-1", "c-2", "c-3"]),
    "source": st.sampled_from(["urn:a", "urn:b"]),
    "since": TIMES,
    "until": TIMES,
}
QUERIES = st.builds(
    lambda reader, filters: EventQuery(reader, **filters),
    st.one_of(st.none(), READERS),
    # Few at once mostly: with all of them hardly any fact is left to be right or wrong about.
    st.one_of(
        st.just({}),
        *(st.fixed_dictionaries({name: values}) for name, values in FILTERS.items()),
        st.fixed_dictionaries({}, optional=FILTERS),
    ),
)


class Nothing:
    """A fold that follows nothing."""

    def apply(self, fact: Fact, time: str) -> None:
        pass

    def replay(self, head: Head) -> None:
        pass


@attrs.define
class Model:
    """The log as a list of its lines by number, read by a plain loop."""

    lines: dict[int, bytes] = attrs.field(factory=dict)

    def answers(self, query: EventQuery) -> dict[int, bytes]:
        return {seq: line for seq, line in self.lines.items() if self._answers(query, orjson.loads(line))}

    def _answers(self, query: EventQuery, fact: dict[str, str]) -> bool:
        reader = query.reader
        return (
            (reader is None or reader.may_read(fact.get("holder"), fact["type"]))
            and query.type in (None, fact["type"])
            and query.correlation in (None, fact.get("correlationid"))
            and query.source in (None, fact["source"])
            and (query.since is None or fact["time"] >= query.since)
            and (query.until is None or fact["time"] <= query.until)
        )


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    lives=LIVES,
    queries=st.lists(QUERIES, min_size=4, max_size=7),
    limit=st.sampled_from([1, 5, 7, 11, 30]),
    tail=st.sampled_from([1, 4, 16, 1000]),
    page_bytes=st.sampled_from([600, 3000, 1 << 20]),
)
def test_paging_and_following_find_what_a_plain_loop_finds(
    tmp_path_factory: pytest.TempPathFactory,
    lives: list[tuple[tuple[str, object], ...]],
    queries: list[EventQuery],
    limit: int,
    tail: int,
    page_bytes: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TAIL_FACTS", tail)
        patch.setattr(module, "PAGE_BYTES", page_bytes)
        patch.setattr(index, "BLOCK", 8)
        patch.setattr(keyrows, "ROWS", 32)
        patch.setattr(stretches, "BLOCK_BYTES", 2000)
        patch.setattr(os, "fsync", lambda fd: None)
        patch.setattr(os, "fdatasync", lambda fd: None)
        steps = [step for life in lives for step in life]
        trio.run(_live_through, tmp_path_factory.mktemp("log"), steps, queries, limit)


async def _live_through(
    data: Path, steps: list[tuple[str, object]], queries: list[EventQuery], limit: int
) -> None:
    clock, model, source = FakeClock(BEGIN_MS), Model(), "urn:a"
    while True:
        lost: int | None = None
        log = await EventLog.open(data, EnvelopeEncoder(source, {}), clock, Nothing())
        model = _from_files(data)
        async with trio.open_nursery() as nursery:
            await nursery.start(log.run)
            while steps:
                match steps.pop(0):
                    case ("tell", list(facts)):
                        await log.tell(*facts)
                    case ("clock", int(ms)):
                        clock.advance(ms)
                    case ("reopen", str(source)):
                        break
                    case ("lose a day", int(lost)):
                        break
            model = _from_files(data)
            for query in queries:
                await _compare(log, model, query, limit)
            nursery.cancel_scope.cancel()
        if lost is not None:
            # Any but the last, whose numbers would be given again.
            days = sorted((data / "events").iterdir())[:-1]
            for path in days[lost : lost + 1]:
                path.unlink()
        if not steps:
            return


def _from_files(data: Path) -> Model:
    model = Model()
    for path in sorted((data / "events").iterdir()):
        for line in path.read_bytes().splitlines():
            model.lines[int(orjson.loads(line)["id"].removeprefix("evt-"))] = line
    assert list(model.lines) == sorted(model.lines)
    return model


async def _compare(log: EventLog, model: Model, query: EventQuery, limit: int) -> None:
    wanted = model.answers(query)
    paged: list[bytes] = []
    after: int | None = None
    while True:
        page = await log.page(query, after, limit)
        paged += page.lines
        assert len(page.lines) <= limit
        if page.after is None:
            break
        assert page.lines, "no page but the last is empty"
        after = page.after
    assert paged == list(wanted.values())

    frames = [(seq, b"id: evt-%d\ndata: %b\n\n" % (seq, line)) for seq, line in wanted.items()]
    assert await _follow(log, query, 0, limit) == frames
    for seq in list(model.lines)[5::40]:
        position = log.position_after(f"evt-{seq}")
        assert await _follow(log, query, position, limit) == [f for f in frames if f[0] > seq]


async def _follow(log: EventLog, query: EventQuery, position: int, most: int) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while position < log.end:
        read = await log.read(query, position, most)
        assert position < read.position <= log.end
        assert len(read.facts) <= most
        found += read.facts
        position = read.position
    return found
