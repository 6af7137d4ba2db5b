"""What streams write: batches of bounded size, joined once for all that are sent the same."""

from pathlib import Path

import trio

from actors.log.eventlog import Read
from actors.log.index import EventQuery
from actors.messages.envelope import EnvelopeEncoder, Fact
from actors.messages.events import PromptAnswered, Undeployed
from actors.rules.visibility import Reader
from actors.store import Store
from actors.streams import BATCH_BYTES, LastBatch, Stream, Streams
from adapters.clock.fake import FakeClock

EVERYTHING = EventQuery(reader=None)
QUIET = 60.0


def read(*numbers: int) -> Read:
    return Read([(number, b"id: %d\n\n" % number) for number in numbers], numbers[-1] + 1)


def test_the_same_facts_are_joined_once() -> None:
    last = LastBatch()
    first, position = last.join(read(4, 5, 6))
    assert (first, position) == (b"id: 4\n\nid: 5\n\nid: 6\n\n", 7)
    assert last.join(read(4, 5, 6))[0] is first


def test_facts_with_others_left_out_between_them_are_joined_for_themselves() -> None:
    last = LastBatch()
    last.join(read(4, 5, 6))
    assert last.join(read(4, 6)) == (b"id: 4\n\nid: 6\n\n", 7)
    assert last.join(read(4, 5)) == (b"id: 4\n\nid: 5\n\n", 6)
    assert last.join(read(4, 5, 6)) == (b"id: 4\n\nid: 5\n\nid: 6\n\n", 7)


async def started(folder: Path, nursery: trio.Nursery) -> tuple[Store, Streams]:
    store = Store(folder, EnvelopeEncoder("urn:test", {}), FakeClock())
    await nursery.start(store.run)
    return store, Streams(store)


async def everything(stream: Stream, store: Store, count: int) -> list[bytes]:
    """What a stream writes until it has written so many frames."""
    written: list[bytes] = []
    while b"".join(written).count(b"\ndata: ") < count:
        with trio.fail_after(10):
            batch = await stream.next(quiet_seconds=QUIET)
        assert batch
        written.append(batch)
    return written


async def test_a_batch_ends_before_it_is_too_large_and_the_next_goes_on_from_there(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        store, streams = await started(tmp_path, nursery)
        stream = streams.open("h-1", EVERYTHING, None, None)
        facts = [Fact(PromptAnswered("dep-1", "x" * (BATCH_BYTES // 3), "m", n, 1), "h-1") for n in range(7)]
        await store.events.tell(*facts)
        written = await everything(stream, store, 7)
        assert all(len(batch) <= BATCH_BYTES for batch in written)
        joined = b"".join(written)
        assert [joined.count(b"id: evt-%d\n" % n) for n in range(7)] == [1] * 7
        nursery.cancel_scope.cancel()


async def test_a_fact_larger_than_a_batch_goes_out_alone(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        store, streams = await started(tmp_path, nursery)
        stream = streams.open("h-1", EVERYTHING, None, None)
        small = Fact(Undeployed("dep-1"), "h-1")
        await store.events.tell(
            small, Fact(PromptAnswered("dep-1", "x" * BATCH_BYTES, "m", 1, 1), "h-1"), small
        )
        written = await everything(stream, store, 3)
        assert [batch.count(b"\ndata: ") for batch in written] == [1, 1, 1]
        nursery.cancel_scope.cancel()


async def test_each_reader_is_sent_its_own_facts_whatever_was_joined_before(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        store, streams = await started(tmp_path, nursery)
        owner = streams.open("h-owner", EVERYTHING, None, None)
        one = streams.open("h-1", EventQuery(Reader("h-1")), None, None)
        two = streams.open("h-2", EventQuery(Reader("h-2")), None, None)
        answers = [Fact(PromptAnswered("dep-1", "x", "m", 1, 1), f"h-{n % 2 + 1}") for n in range(6)]
        await store.events.tell(*answers)
        for stream, seen in ((owner, range(6)), (one, (0, 2, 4)), (two, (1, 3, 5))):
            batch = await stream.next(quiet_seconds=QUIET)
            assert batch is not None
            assert [n for n in range(6) if b"id: evt-%d\n" % n in batch] == list(seen)
        nursery.cancel_scope.cancel()
