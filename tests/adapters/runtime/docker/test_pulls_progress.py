"""How far a pull is, by the lines an engine says of it."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.images.port import PullProgress
from adapters.runtime.docker.progress import MAX_PARTS, PullTracker

HEAD = {"status": "Pulling from bed/layered", "id": "127.0.0.1:5000/bed/layered@sha256:00"}
DIGEST = {"status": "Digest: sha256:00"}
DONE = {"status": "Status: Downloaded newer image for 127.0.0.1:5000/bed/layered@sha256:00"}


def line(part: str, status: str, current: int | None = None, total: int | None = None) -> dict[str, Any]:
    detail = {"current": current, "total": total}
    told = {name: value for name, value in detail.items() if value is not None}
    return {"id": part, "status": status, "progressDetail": told}


def tracked(*lines: dict[str, Any]) -> PullTracker:
    tracker = PullTracker()
    for one in lines:
        tracker.take(one)
    return tracker


def test_nothing_is_known_before_anything_is_fetched() -> None:
    assert tracked().progress() == PullProgress(None, 0, None)
    waiting = tracked(
        HEAD, line("a", "Pulling fs layer"), line("b", "Pulling fs layer"), line("b", "Waiting")
    )
    assert waiting.progress() == PullProgress(None, 0, None)


def test_bytes_count_when_every_part_is_known() -> None:
    tracker = tracked(line("a", "Downloading", 30, 100), line("b", "Downloading", 10, 100))
    assert tracker.progress() == PullProgress(20, 40, 200)


def test_what_waits_counts_as_large_as_the_rest_and_the_total_is_not_told() -> None:
    tracker = tracked(
        line("a", "Downloading", 100, 100), line("b", "Pulling fs layer"), line("c", "Pulling fs layer")
    )
    assert tracker.progress() == PullProgress(33, 100, None)


def test_it_falls_back_when_a_part_turns_out_to_be_larger() -> None:
    tracker = tracked(line("a", "Downloading", 100, 100), line("b", "Pulling fs layer"))
    assert tracker.progress().percent == 50
    tracker.take(line("b", "Downloading", 1, 900))
    assert tracker.progress() == PullProgress(10, 101, 1000)


def test_a_part_whose_size_nobody_said_leaves_bytes_alone() -> None:
    tracker = tracked(line("a", "Downloading", 50, 100), line("b", "Downloading", 70))
    assert tracker.progress() == PullProgress(None, 120, None)
    tracker.take(line("b", "Download complete"))
    assert tracker.progress() == PullProgress(70, 120, 170)


def test_a_part_with_no_word_on_its_bytes_is_done_all_the_same() -> None:
    tracker = tracked(line("a", "Pulling fs layer"), line("a", "Download complete"))
    assert tracker.progress() == PullProgress(99, 0, 0)


def test_it_is_never_a_hundred() -> None:
    tracker = tracked(
        line("a", "Downloading", 100, 100),
        line("a", "Extracting", 100, 100),
        line("a", "Pull complete"),
        DIGEST,
        DONE,
    )
    assert tracker.progress() == PullProgress(99, 100, 100)
    assert tracker.is_done


def test_a_download_taken_up_again_counts_what_came_before() -> None:
    """After a retry the engine asks for the rest, counts from nothing, and calls the rest the total."""
    tracker = tracked(line("a", "Downloading", 400, 1000), line("a", "Retrying in 5 seconds"))
    assert tracker.progress().bytes_done == 400
    tracker.take(line("a", "Retrying in 1 second"))
    tracker.take(line("a", "Downloading", 10, 600))
    assert tracker.progress() == PullProgress(41, 410, 1000)
    tracker.take(line("a", "Download complete"))
    assert tracker.progress() == PullProgress(99, 1000, 1000)


def test_a_download_begun_anew_falls_back() -> None:
    tracker = tracked(line("a", "Downloading", 400, 1000), line("a", "Retrying in 5 seconds"))
    tracker.take(line("a", "Downloading", 10, 1000))
    assert tracker.progress() == PullProgress(1, 10, 1000)


def test_what_was_here_before_is_not_counted() -> None:
    tracker = tracked(line("a", "Already exists"), line("b", "Downloading", 10, 40))
    assert tracker.progress() == PullProgress(25, 10, 40)
    assert (tracker.has_shared, tracker.has_fetched) == (True, True)
    nothing = tracked(HEAD, line("a", "Already exists"), DIGEST, DONE)
    assert (nothing.has_shared, nothing.has_fetched) == (True, False)
    assert nothing.progress() == PullProgress(None, 0, None)


def test_extracting_says_nothing_of_bytes() -> None:
    tracker = tracked(
        line("a", "Downloading", 100, 100), line("a", "Extracting", 3, 70), line("b", "Waiting")
    )
    assert tracker.progress() == PullProgress(50, 100, None)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"errorDetail": {"message": "unexpected EOF"}, "error": "unexpected EOF"}, "unexpected EOF"),
        # Newer engines say it in one of the two places alone.
        ({"errorDetail": {"message": "denied"}}, "denied"),
        ({"error": "denied"}, "denied"),
        ({"errorDetail": {"code": 401, "message": ""}, "error": "denied"}, "denied"),
    ],
)
def test_an_error_in_the_stream_is_one(said: dict[str, Any], error: str) -> None:
    tracker = tracked(HEAD, said)
    assert (tracker.error, tracker.is_done, tracker.has_ended) == (error, False, True)


def test_only_the_last_line_says_that_it_is_done() -> None:
    assert not tracked(HEAD, line("a", "Pull complete"), DIGEST).has_ended
    assert tracked(HEAD, DIGEST, DONE).is_done
    # A part is no whole, and a registry chooses neither.
    assert not tracked(line("a", "Status: Downloaded")).is_done


@pytest.mark.parametrize(
    ("lines", "is_waiting"),
    [
        ((), False),
        (("a", "Already exists", "b", "Pulling fs layer", "c", "Waiting"), True),
        (("b", "Downloading", "c", "Waiting"), False),
        (("b", "Download complete", "c", "Waiting"), True),
        (("b", "Download complete", "c", "Pull complete"), False),
    ],
)
def test_it_waits_while_no_part_of_it_is_fetched(lines: tuple[str, ...], is_waiting: bool) -> None:
    tracker = tracked(*(line(part, status) for part, status in zip(lines[::2], lines[1::2], strict=True)))
    assert tracker.is_waiting is is_waiting


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"status": None, "id": 7},
        {"status": ["x"], "id": {"a": 1}, "progressDetail": "none"},
        {"id": "a", "status": "Downloading", "progressDetail": {"current": "1", "total": -5}},
        {"id": "a", "status": "Downloading", "progressDetail": None},
        {"id": "a", "status": "Downloading"},
        {"id": "WARNING", "status": "something is odd"},
        {"errorDetail": "text", "error": ""},
        {"errorDetail": [], "error": None},
    ],
)
def test_a_line_that_makes_no_sense_does_no_harm(said: dict[str, Any]) -> None:
    tracker = tracked(said)
    assert tracker.progress().percent is None
    assert not tracker.has_ended


def test_no_number_of_parts_is_kept_without_end() -> None:
    tracker = tracked(*(line(str(number), "Downloading", 1, 1) for number in range(3 * MAX_PARTS)))
    assert tracker.progress().bytes_total == MAX_PARTS


_status = st.sampled_from(
    [
        "Pulling fs layer",
        "Waiting",
        "Downloading",
        "Verifying Checksum",
        "Download complete",
        "Extracting",
        "Pull complete",
        "Already exists",
        "Retrying in 3 seconds",
    ]
)
_lines = st.lists(
    st.builds(
        line,
        st.sampled_from("abc"),
        _status,
        st.none() | st.integers(0, 999),
        st.none() | st.integers(1, 999),
    )
)


@settings(deadline=None)
@given(_lines)
def test_whatever_is_said_the_progress_makes_sense(lines: Iterable[dict[str, Any]]) -> None:
    tracker = PullTracker()
    for one in lines:
        tracker.take(one)
        found = tracker.progress()
        assert found.bytes_done >= 0
        assert found.percent is None or 0 <= found.percent <= 99
        assert found.bytes_total is None or found.bytes_total >= 0
        assert tracker.known_bytes >= 0
