"""Facts are durable before anyone reads them, in one order for the fold, the pages and the cursors."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from actors.log import eventlog as module
from actors.log.index import EventQuery
from actors.log.journal import JournalUnavailable
from actors.messages.envelope import Fact
from actors.rules.visibility import Reader
from adapters.clock.fake import FakeClock
from tests.support.logs import (
    ENCODER,
    EVERYTHING,
    SOURCE,
    Memory,
    Syncs,
    answered,
    contents,
    day_files,
    ids,
    open_log,
    told,
    whole_page,
    writing,
)


async def test_what_was_told_is_durable_folded_and_readable_on_return(tmp_path: Path, syncs: Syncs) -> None:
    fold = Memory()
    async with writing(await open_log(tmp_path, fold)) as log:
        await log.tell(answered("one", correlation="c-1", causation="cmd-1"))
        assert syncs.count == 1
        assert fold.contents == ["one"]
        (line,) = await whole_page(log)
        assert day_files(tmp_path) == {"2026-11-30.jsonl": line + b"\n"}
    assert orjson.loads(line) == {
        "specversion": "1.0",
        "id": "evt-0",
        "source": SOURCE,
        "type": "PromptAnswered",
        "datacontenttype": "application/json",
        "dataschema": "https://peer.example/events/PromptAnswered/1.0",
        "time": "2026-11-30T00:53:20.000Z",
        "correlationid": "c-1",
        "causationid": "cmd-1",
        "holder": "h-1",
        "data": {
            "deployment": "dep-1",
            "content": "one",
            "model": "m.gguf",
            "prompt_tokens": 1,
            "completion_tokens": 2,
            "finish_reason": "stop",
        },
    }


async def test_nothing_is_shown_before_it_is_durable(tmp_path: Path, syncs: Syncs) -> None:
    fold = Memory()
    async with writing(await open_log(tmp_path, fold)) as log, trio.open_nursery() as nursery:
        syncs.hold()
        nursery.start_soon(log.tell, answered("one"))
        await wait_all_tasks_blocked()
        assert fold.contents == []
        assert log.end == 0
        assert (await log.page(EVERYTHING, None, 10)).lines == []
        assert (await log.read(EVERYTHING, 0, 10)).facts == []
        syncs.release()
    assert fold.contents == ["one"]


async def test_many_tellers_share_one_sync(tmp_path: Path, syncs: Syncs) -> None:
    async with writing(await open_log(tmp_path)) as log, trio.open_nursery() as nursery:
        syncs.hold()
        nursery.start_soon(log.tell, answered("first"))
        await wait_all_tasks_blocked()
        for number in range(256):
            nursery.start_soon(log.tell, answered(str(number)))
        await wait_all_tasks_blocked()
        syncs.release()
    assert syncs.count == 2
    assert (log.statistics().entries, log.statistics().peak) == (257, 256)


async def test_facts_of_one_teller_stand_together_in_their_order(tmp_path: Path) -> None:
    async with writing(await open_log(tmp_path)) as log, trio.open_nursery() as nursery:
        for teller in "abc":
            nursery.start_soon(log.tell, *(answered(f"{teller}{n}") for n in range(3)))
    told_order = "".join(contents(day_files(tmp_path)["2026-11-30.jsonl"].splitlines()))
    assert all(f"{teller}0{teller}1{teller}2" in told_order for teller in "abc")


async def test_telling_nothing_is_nothing(tmp_path: Path, syncs: Syncs) -> None:
    async with writing(await open_log(tmp_path)) as log:
        await log.tell()
    assert syncs.count == 0


async def test_a_teller_that_is_cancelled_has_told_all_the_same(tmp_path: Path, syncs: Syncs) -> None:
    fold = Memory()
    async with writing(await open_log(tmp_path, fold)) as log:
        async with trio.open_nursery() as nursery:
            syncs.hold()
            nursery.start_soon(log.tell, answered("left"))
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        syncs.release()
        await log.tell(answered("stayed"))
    assert fold.contents == ["left", "stayed"]


async def test_a_log_that_is_not_written_tells_nothing(tmp_path: Path) -> None:
    log = await open_log(tmp_path)
    with pytest.raises(JournalUnavailable):
        await log.tell(answered("early"))
    log.close()


async def test_what_is_no_json_fails_its_teller_and_not_the_pen(tmp_path: Path) -> None:
    """An engine may answer with half of a surrogate pair."""
    async with writing(await open_log(tmp_path)) as log:
        with pytest.raises(UnicodeEncodeError):
            await log.tell(answered("fine"), answered("\ud83d"))
        await log.tell(answered("next \U0001f600"))
        assert contents(await whole_page(log)) == ["next \U0001f600"]


async def test_a_reopened_log_goes_on_where_it_ended(tmp_path: Path) -> None:
    await told(tmp_path, answered("one"), answered("two"))
    fold = Memory()
    log = await open_log(tmp_path, fold)
    assert fold.contents == ["one", "two"]
    assert log.end == 2
    async with writing(log):
        await log.tell(answered("three"))
        lines = await whole_page(log)
    assert contents(lines) == ["one", "two", "three"]
    assert ids(lines) == ["evt-0", "evt-1", "evt-2"]


async def test_a_page_says_whether_there_is_another(tmp_path: Path) -> None:
    async with writing(await open_log(tmp_path)) as log:
        await log.tell(*(answered(str(n)) for n in range(4)))
        first = await log.page(EVERYTHING, None, 2)
        assert (contents(first.lines), first.after) == (["0", "1"], 1)
        second = await log.page(EVERYTHING, first.after, 2)
        assert (contents(second.lines), second.after) == (["2", "3"], None)
        assert (await log.page(EVERYTHING, 3, 2)).lines == []
        assert (await log.page(EVERYTHING, 99, 2)).lines == []
        assert contents((await log.page(EVERYTHING, -7, 2)).lines) == ["0", "1"]


@pytest.mark.parametrize("reopened", [False, True])
async def test_a_page_ends_early_when_its_facts_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reopened: bool
) -> None:
    monkeypatch.setattr(module, "PAGE_BYTES", 2500)
    facts = [answered(f"{n}" + "x" * 500) for n in range(10)] + [answered("y" * 9000), answered("z")]
    await told(tmp_path, *([] if not reopened else facts))
    async with writing(await open_log(tmp_path)) as log:
        if not reopened:
            await log.tell(*facts)
        page = await log.page(EVERYTHING, None, 100)
        assert 0 < len(page.lines) < 10
        assert sum(map(len, page.lines)) <= 2500
        assert contents(await whole_page(log)) == [fact.event.content for fact in facts]
        assert await follow(log, EVERYTHING, 0, 100) == [fact.event.content for fact in facts]


async def test_a_cursor_reads_frames_named_by_their_facts_ids(tmp_path: Path) -> None:
    async with writing(await open_log(tmp_path)) as log:
        await log.tell(answered("one"), answered("two"))
        read = await log.read(EVERYTHING, 0, 1)
        (line, _) = await whole_page(log)
        assert read.facts == [(0, b"id: evt-0\ndata: " + line + b"\n\n")]
        assert read.position == 1
    async with writing(await open_log(tmp_path)) as log:
        assert await log.read(EVERYTHING, 0, 1) == read


async def test_cursors_are_woken_together_and_only_by_news(tmp_path: Path) -> None:
    woken: list[int] = []

    async def wait(position: int) -> None:
        await log.wait_for_news(position)
        woken.append(position)

    async with writing(await open_log(tmp_path)) as log, trio.open_nursery() as nursery:
        for position in (0, 0, 1, 2):
            nursery.start_soon(wait, position)
        await wait_all_tasks_blocked()
        assert woken == []
        await log.tell(answered("one"), answered("two"))
        await wait_all_tasks_blocked()
        assert sorted(woken) == [0, 0, 1]
        await log.tell(answered("three"))
    assert sorted(woken) == [0, 0, 1, 2]


async def test_a_stream_goes_on_behind_the_event_it_saw_last(tmp_path: Path) -> None:
    await told(tmp_path, *(answered(str(n)) for n in range(3)))
    async with writing(await open_log(tmp_path)) as log:
        assert [log.position_after(i) for i in ("evt-0", "evt-2")] == [1, 3]


@pytest.mark.parametrize(
    "strange", ["evt-3", "evt-", "evt--1", "0", "", "evt-1x", "evt-" + "9" * 40, "evt-\u0661", "EVT-1"]
)
async def test_an_id_that_is_none_of_this_logs_begins_at_the_beginning(tmp_path: Path, strange: str) -> None:
    await told(tmp_path, *(answered(str(n)) for n in range(3)))
    async with writing(await open_log(tmp_path)) as log:
        assert log.position_after(strange) == 0


async def test_the_tail_in_memory_stays_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TAIL_FACTS", 8)
    monkeypatch.setattr(module, "TAIL_BYTES", 4000)
    async with writing(await open_log(tmp_path)) as log:
        for number in range(60):
            size = 3000 if number == 40 else 10
            await log.tell(answered(f"{number} " + "x" * size))
            assert len(log._tail) <= 17
            assert log._tail_bytes == sum(len(t.line) for t in log._tail) <= 8000
        assert [c.split()[0] for c in contents(await whole_page(log))] == [str(n) for n in range(60)]


async def test_a_reader_sees_only_what_is_its_own(tmp_path: Path) -> None:
    async with writing(await open_log(tmp_path)) as log:
        await log.tell(
            answered("mine", holder="h-1"),
            answered("yours", holder="h-2"),
            answered("the peer's", holder=None),
        )
        for all_workloads in (False, True):  # answers are never read by `all` keys
            query = EventQuery(Reader("h-1", sees_all=all_workloads))
            assert contents(await whole_page(log, query)) == ["mine"]
            assert await follow(log, query, 0, 10) == ["mine"]
    # The same from files.
    async with writing(await open_log(tmp_path)) as log:
        assert contents(await whole_page(log, EventQuery(Reader("h-2")))) == ["yours"]
        assert await follow(log, EventQuery(Reader("h-2")), 0, 10) == ["yours"]


@pytest.mark.parametrize("batch", [1, 3, 50])
async def test_replay_meets_what_is_live_without_gap_or_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """Cursors begin in files, overtake the tail while facts are appended, and end at the last of them."""
    monkeypatch.setattr(module, "TAIL_FACTS", 10)
    await told(tmp_path, *(answered(f"old {n}", holder=f"h-{n % 2}") for n in range(40)))
    facts = [answered(f"new {n}", holder=f"h-{n % 2}") for n in range(200)]
    expected = {None: 240, "h-0": 120, "h-1": 120}
    got: dict[str | None, list[int]] = {holder: [] for holder in expected}

    async def read_on(holder: str | None) -> None:
        query, position = EventQuery(None if holder is None else Reader(holder)), 0
        while len(got[holder]) < expected[holder]:
            read = await log.read(query, position, batch)
            assert len(read.facts) <= batch
            assert position <= read.position <= log.end
            got[holder] += [seq for seq, _ in read.facts]
            position = read.position
            if not read.facts:
                await log.wait_for_news(position)
            await trio.lowlevel.checkpoint()

    async def tell_all(own: list[Fact]) -> None:
        for fact in own:
            await log.tell(fact)

    async with writing(await open_log(tmp_path)) as log, trio.open_nursery() as nursery:
        for holder in expected:
            nursery.start_soon(read_on, holder)
        for part in range(4):
            nursery.start_soon(tell_all, facts[part::4])
    assert got[None] == list(range(240))
    seen = {seq: holder for holder in ("h-0", "h-1") for seq in got[holder]}
    assert sorted(seen) == list(range(240))
    assert all(got[h] == sorted(got[h]) for h in expected)


async def follow(log: module.EventLog, query: EventQuery, position: int, most: int) -> list[str]:
    """What a cursor reads up to the log's end."""
    lines: list[bytes] = []
    while position < log.end:
        read = await log.read(query, position, most)
        assert read.position > position
        position = read.position
        lines += [frame.split(b"data: ", 1)[1].rstrip(b"\n") for _, frame in read.facts]
    return contents(lines)


def test_the_encoder_leaves_out_what_a_fact_has_not() -> None:
    line = orjson.loads(ENCODER.line(answered("x", holder=None), 7, FakeClock().now_ms()))
    assert "holder" not in line
    assert "correlationid" not in line
    assert line["id"] == "evt-7"
