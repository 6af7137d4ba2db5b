"""The index answers as a plain loop over all facts would, and its blocks of times leave nothing out."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.log import index as module
from actors.log import keyrows
from actors.log.index import EventIndex, EventQuery
from actors.messages.envelope import Head
from actors.messages.times import time_text
from actors.rules.visibility import SHARED_FACTS, Reader

KINDS = ["DeploymentStarted", "DeploymentReady", "Undeployed", "PromptAnswered", "CommandFailed"]
HOLDERS = ["h-1", "h-2", "h-3"]
CORRELATIONS = ["c-1", "c-2", "c-3"]
SOURCES = ["urn:a", "urn:b"]
TIMES = st.integers(0, 50).map(lambda n: time_text(1_796_000_000_000 + 1000 * n))


@attrs.frozen
class Row:
    """A fact as far as the index knows it."""

    kind: str
    holder: str | None
    source: str
    correlation: str | None
    time: str

    def head(self) -> Head:
        return Head("evt-0", self.kind, self.time, self.source, self.correlation, None, self.holder)

    def answers(self, query: EventQuery) -> bool:
        reader = query.reader
        return (
            (
                reader is None
                or self.holder == reader.holder
                or (reader.sees_all and self.kind in SHARED_FACTS)
            )
            and query.type in (None, self.kind)
            and query.correlation in (None, self.correlation)
            and query.source in (None, self.source)
            and (query.since is None or self.time >= query.since)
            and (query.until is None or self.time <= query.until)
        )


ROWS = st.lists(
    st.builds(
        Row,
        kind=st.sampled_from(KINDS),
        holder=st.sampled_from([None, *HOLDERS]),
        source=st.sampled_from(SOURCES),
        correlation=st.sampled_from([None, *CORRELATIONS]),
        time=TIMES,
    ),
    min_size=30,
    max_size=120,
)
QUERIES = st.builds(
    EventQuery,
    reader=st.one_of(st.none(), st.builds(Reader, st.sampled_from([*HOLDERS, "stranger"]), st.booleans())),
    type=st.sampled_from([None, None, *KINDS, "Unheard"]),
    correlation=st.sampled_from([None, None, *CORRELATIONS, "unheard"]),
    source=st.sampled_from([None, None, *SOURCES, "urn:unheard"]),
    since=st.one_of(st.none(), TIMES),
    until=st.one_of(st.none(), TIMES),
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks and tables small enough that random facts fill many."""
    monkeypatch.setattr(module, "BLOCK", 8)
    monkeypatch.setattr(keyrows, "ROWS", 32)


def built(rows: list[Row], many: list[int]) -> EventIndex:
    """An index of these rows: so many at once as `many` says, one after the other; the rest one by one."""
    index = EventIndex()
    for count in many:
        first = len(index)
        index.add_many([row.head() for row in rows[first : first + count]])
    for number, row in enumerate(rows[len(index) :], len(index)):
        assert index.add(row.kind, row.holder, row.source, row.correlation, row.time) == number
    return index


@settings(max_examples=250, deadline=None)
@given(
    rows=ROWS,
    many=st.lists(st.integers(1, 30), min_size=2, max_size=4),
    queries=st.lists(QUERIES, max_size=8),
    first=st.integers(0, 130),
)
def test_it_selects_what_a_loop_over_all_facts_would(
    rows: list[Row], many: list[int], queries: list[EventQuery], first: int
) -> None:
    index = built(rows, many)
    assert len(index) == len(rows)
    for query in queries:
        found = list(index.select(query, first))
        wanted = [n for n, row in enumerate(rows) if n >= first and row.answers(query)]
        assert found == sorted(set(found))
        assert set(wanted) <= set(found)
        # Exact but for times, which it knows by blocks; no two of these correlations share a hash.
        blocks = {n // 8 for n, row in enumerate(rows) if _in_time(row, query)}
        plain = attrs.evolve(query, since=None, until=None)
        assert all(rows[n].answers(plain) for n in found)
        assert {n // 8 for n in found} <= blocks | {n // 8 for n in found if _spans(rows, n // 8, query)}
        if query.since is None and query.until is None:
            assert found == wanted


def _in_time(row: Row, query: EventQuery) -> bool:
    return row.answers(EventQuery(None, since=query.since, until=query.until))


def _spans(rows: list[Row], block: int, query: EventQuery) -> bool:
    """Whether the block's earliest and latest fact lie on both sides of what is asked for."""
    times = [row.time for row in rows[block * 8 : block * 8 + 8]]
    return max(times) >= (query.since or "") and (query.until is None or min(times) <= query.until)


def test_one_wrong_hour_of_the_clock_does_not_make_every_later_query_read_everything() -> None:
    index = EventIndex()
    for number in range(800):
        ms = 1_796_000_000_000 + 1000 * number
        wrong = 400_000_000_000 if number == 3 else -400_000_000_000 if number == 700 else 0
        index.add("Undeployed", None, "urn:a", None, time_text(ms + wrong))
    since, until = (time_text(1_796_000_000_000 + 1000 * n) for n in (500, 503))
    rows = list(index.select(EventQuery(None, since=since, until=until)))
    assert set(range(500, 504)) <= set(rows)
    assert len(rows) <= 4 * 8


def test_facts_with_nothing_in_common_but_a_code_share_it() -> None:
    index = built([Row("Undeployed", "h-1", "urn:a", f"c-{n}", time_text(n)) for n in range(100)], [50])
    assert len({id(index.code(n)) for n in range(100)}) == 1
    assert (index.code(7).holder, index.code(7).type, index.code(7).source) == ("h-1", "Undeployed", "urn:a")
