"""The log's files read from outside the peer: in order, from the end, growing, and as a crash left them."""

from __future__ import annotations

from pathlib import Path

import pytest

import peer.cli.eventfiles
from peer.cli.eventfiles import BLOCK, EventFiles, Place

LONG = b"x" * (3 * BLOCK)


def write(data: Path, name: str, *lines: bytes, torn: bytes = b"") -> Path:
    path = data / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(line + b"\n" for line in lines) + torn)
    return path


def append(path: Path, text: bytes) -> None:
    with path.open("ab") as file:
        file.write(text)


def forward(files: EventFiles, start: Place | None = None) -> list[bytes]:
    return [line for line, _ in files.forward(start or Place())]


def backward(files: EventFiles) -> list[bytes]:
    return list(files.backward(files.end()))


@pytest.fixture
def log(tmp_path: Path) -> EventFiles:
    """Three files: an older peer's, and two days."""
    write(tmp_path, "events.jsonl", b"old 1", b"old 2")
    write(tmp_path, "events/2026-10-20.jsonl", b"day 2")
    write(tmp_path, "events/2026-10-19.jsonl", b"day 1", LONG)
    write(tmp_path, "events/2026-10-19.jsonl.torn-1", b"no part of the log")
    write(tmp_path, "events/notes.jsonl", b"no part of the log")
    return EventFiles(tmp_path)


ALL = [b"old 1", b"old 2", b"day 1", LONG, b"day 2"]


def test_the_older_peers_file_comes_first_and_days_in_order(log: EventFiles) -> None:
    assert forward(log) == ALL


def test_backward_is_the_same_in_reverse(log: EventFiles) -> None:
    assert backward(log) == ALL[::-1]


def test_every_place_goes_on_where_it_was(log: EventFiles) -> None:
    places = [place for _, place in log.forward(Place())]
    assert [forward(log, place) for place in places] == [ALL[n + 1 :] for n in range(len(ALL))]
    assert places[-1] == log.end()


def test_a_folder_without_a_log_is_an_empty_one(tmp_path: Path) -> None:
    for files in (EventFiles(tmp_path), EventFiles(tmp_path / "none")):
        assert (forward(files), backward(files), files.end()) == ([], [], Place())
    assert not (tmp_path / "none").exists()


def test_a_torn_last_line_is_not_read_until_it_is_whole(tmp_path: Path) -> None:
    path = write(tmp_path, "events/2026-10-19.jsonl", b"whole", torn=b'{"half')
    files = EventFiles(tmp_path)
    assert (forward(files), backward(files)) == ([b"whole"], [b"whole"])
    assert files.passed_over == 0
    end = files.end()
    append(path, b' of it"}\n')
    assert forward(files, end) == [b'{"half of it"}']


def test_a_file_of_one_torn_line_has_none(tmp_path: Path) -> None:
    write(tmp_path, "events/2026-10-19.jsonl", torn=LONG)
    files = EventFiles(tmp_path)
    assert (forward(files), backward(files), files.end()) == ([], [], Place("2026-10-19.jsonl"))


def test_a_new_days_file_is_found_behind_the_end(log: EventFiles) -> None:
    end = log.end()
    write(log.data, "events/2026-10-21.jsonl", b"day 3")
    assert forward(log, end) == [b"day 3"]


def test_what_the_peer_took_back_is_read_on_from_its_new_end(tmp_path: Path) -> None:
    path = write(tmp_path, "events/2026-10-19.jsonl", b"kept", b"no room for this")
    files = EventFiles(tmp_path)
    end = files.end()
    with path.open("r+b") as file:
        file.truncate(len(b"kept\n"))
    end = files.settled(end)
    assert forward(files, end) == []
    append(path, b"next\n")
    assert forward(files, files.settled(end)) == [b"next"]
    assert files.settled(Place("2026-10-20.jsonl", 7)) == Place("2026-10-20.jsonl", 7)


def test_a_file_that_changed_under_a_place_is_read_on_at_a_whole_line(tmp_path: Path) -> None:
    path = write(tmp_path, "events/2026-10-19.jsonl", b"1", b"2")
    files = EventFiles(tmp_path)
    end = files.end()
    path.write_bytes(b"another first line\nanother second line\n")
    assert forward(files, end) == [b"another second line"]
    path.write_bytes(b"one line without end" * BLOCK)
    assert forward(files, end) == []


def test_a_day_removed_meanwhile_is_passed_over(log: EventFiles) -> None:
    end = Place("2026-10-19.jsonl", 6)
    (log.data / "events/2026-10-19.jsonl").unlink()
    assert forward(log, end) == [b"day 2"]
    lines = log.forward(Place())
    assert next(lines)[0] == b"old 1"
    (log.data / "events/2026-10-20.jsonl").unlink()
    assert [line for line, _ in lines] == [b"old 2"]


def test_a_line_beyond_reason_is_passed_over_both_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer.cli.eventfiles, "MAX_LINE", BLOCK)
    write(tmp_path, "events/2026-10-19.jsonl", LONG, b"1", LONG, LONG, b"2")
    for read in (forward, backward):
        files = EventFiles(tmp_path)
        assert sorted(read(files)) == [b"1", b"2"]
        assert files.passed_over == 3


def test_since_a_day_leaves_out_the_files_of_days_before(tmp_path: Path) -> None:
    write(tmp_path, "events/2026-10-19.jsonl", b"before")
    write(tmp_path, "events/2026-10-20.jsonl", b"then")
    files = EventFiles(tmp_path)
    assert forward(files, files.since_day("2026-10-20")) == [b"then"]
    assert forward(files, files.since_day("2026-10-21")) == []
    write(tmp_path, "events.jsonl", b"an older peer's may hold any day")
    assert len(forward(files, files.since_day("2026-10-20"))) == 3
