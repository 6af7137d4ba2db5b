"""The whole agent at a service whose names it cannot know: what it finds, heeds, refuses and takes down."""

import io
from pathlib import Path
from typing import Any

import pytest

from acceptance.agent import Agent, Order, Outcome
from acceptance.display import Display
from acceptance.filling import Wishes
from acceptance.names import Names
from acceptance.problems import Faulty, Problem, Refused, Unreachable
from acceptance.transcript import Transcript
from acceptance.wire import Wire
from tests.acceptance.library import DOOR, KEY, LOAN, REPLY, Library

QUESTION = "What is it about?"


class Run:
    """One agent with everything it wrote."""

    def __init__(self, library: Library) -> None:
        names = Names()
        names.call(DOOR, "https://the-service")
        self.transcript = Transcript(names)
        self.seen, self.answered = io.StringIO(), io.StringIO()
        wire = Wire(self.transcript, transport=library.transport())
        self._agent = Agent(wire, self.transcript, Display(self.seen, self.answered, names))

    def __call__(self, **given: Any) -> Outcome:
        wishes = Wishes(QUESTION, given.pop("prefer", ""), given.pop("numbers", {}))
        order = {
            "manifest": f"{DOOR}/.well-known/best",
            "sentence": "borrow a book and ask about it",
            "connection": "reader",
            "approve_with": None,
            "patience": 30.0,
            "confirmed": False,
            **given,
        }
        return self._agent.run(Order(wishes=wishes, **order))


def test_it_gets_an_answer_and_brings_the_book_back() -> None:
    library = Library()
    outcome = Run(library)()
    assert outcome.answer == REPLY
    assert outcome.counts == {"words": 9}
    assert [envelope["type"] for envelope in library.sent] == ["BorrowBook", "AskLibrarian", "ReturnBook"]
    assert [envelope["data"] for envelope in library.sent] == [
        {"title": "Moby Dick", "branch": "north", "days": 7},
        {"loan": LOAN, "talk": [{"by": "reader", "text": QUESTION}]},
        {"loan": LOAN},
    ]
    assert not library.lent


def test_each_command_has_an_id_and_a_correlation_of_its_own() -> None:
    library = Library()
    Run(library)()
    ids = {envelope[name] for envelope in library.sent for name in ("id", "correlationid")}
    assert len(ids) == 2 * len(library.sent)


def test_a_stream_cut_after_every_fact_loses_and_repeats_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acceptance.stream.FIRST_PAUSE", 0.0)
    library = Library(breaks_after=1)
    outcome = Run(library)()
    assert [fact.kind for fact in outcome.taken[0].facts] == ["BookFetched", "BookFetched", "BookLent"]
    assert {"fact-1", "fact-2"} <= set(library.streams)


def test_a_stream_cut_before_the_first_fact_is_made_up_for_from_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("acceptance.stream.FIRST_PAUSE", 0.0)
    library = Library()

    def cut(name: str) -> None:
        library.breaks_after = 0 if name == "borrow-book" else None

    library.on_send = cut
    outcome = Run(library)()
    assert [fact.id for fact in outcome.taken[0].facts] == ["fact-1", "fact-2", "fact-3"]


def test_a_person_is_waited_for() -> None:
    library = Library(pending_polls=3)
    assert Run(library)().answer == REPLY


def test_slow_down_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("acceptance.signin.time.sleep", slept.append)
    Run(Library(pending_polls=2, slow_down=True))()
    assert slept == pytest.approx([5.01, 10.01])


def test_the_key_stands_in_nothing_that_is_written(tmp_path: Path) -> None:
    run = Run(Library())
    run()
    run.transcript.write(tmp_path / "transcript.md")
    written = (tmp_path / "transcript.md").read_text() + run.seen.getvalue() + run.answered.getvalue()
    assert "<key>" in written
    # Not even a part of it, where a long text was cut.
    assert KEY[:8] not in written
    assert "dc_4fK29" not in written


def test_two_transcripts_differ_in_nothing_that_chance_made() -> None:
    def text() -> str:
        run = Run(Library())
        run()
        return run.transcript.text()

    first, second = text(), text()
    times = str.maketrans("", "", "0123456789.")
    assert first.translate(times) == second.translate(times)
    assert LOAN not in first
    assert "<loan 1>" in first


def test_the_answer_alone_goes_to_standard_output() -> None:
    run = Run(Library())
    run()
    assert run.answered.getvalue() == f"{REPLY}\n(words 9)\n"
    assert "BookLent" in run.seen.getvalue()


def test_a_bad_end_is_told_with_its_reason() -> None:
    run = Run(Library(refuses="the book is away"))
    with pytest.raises(Refused, match="borrow-book ended in BorrowingRefused: reason: the book is away"):
        run()


def test_what_a_bad_end_left_unmade_is_not_taken_down() -> None:
    library = Library(refuses="the book is away")
    with pytest.raises(Refused):
        Run(library)()
    assert [envelope["type"] for envelope in library.sent] == ["BorrowBook"]


def test_a_refusal_is_told_in_the_service_s_words_and_what_was_made_is_taken_down() -> None:
    library = Library(says_no=("ask-librarian", "TOO_LATE"))
    with pytest.raises(Refused, match=r'refused with 422: TOO_LATE: not today {"come": "tomorrow"}'):
        Run(library)()
    assert [envelope["type"] for envelope in library.sent] == ["BorrowBook", "ReturnBook"]
    assert not library.lent


def test_a_person_who_breaks_off_leaves_nothing_behind() -> None:
    library = Library()

    def break_off(name: str) -> None:
        if name == "ask-librarian":
            raise KeyboardInterrupt

    library.on_send = break_off
    with pytest.raises(KeyboardInterrupt):
        Run(library)()
    assert library.sent[-1]["type"] == "ReturnBook"
    assert not library.lent


def test_a_taking_down_that_fails_too_is_noted() -> None:
    library = Library(
        tells={
            "ask-librarian": [("LibrarianReplied", {"loan": LOAN, "reply": "", "words": 0})],
            "return-book": [("BorrowingRefused", {"reason": "closed"})],
        }
    )
    with pytest.raises(Faulty) as caught:
        Run(library)()
    (note,) = caught.value.__notes__
    assert note.startswith("and return-book failed too: return-book told BorrowingRefused")


def test_what_is_still_listed_after_it_was_taken_down_is_a_fault() -> None:
    with pytest.raises(Faulty, match=f"list-loans still lists {LOAN}"):
        Run(Library(keeps_loans=True))()


def test_a_fact_that_its_document_forbids_is_a_fault() -> None:
    library = Library(tells={"borrow-book": [("BookLent", {"loan": LOAN, "title": 7})]})
    with pytest.raises(Faulty, match="BookLent does not fit its own document: /title"):
        Run(library)()


def test_a_fact_that_the_command_does_not_name_is_a_fault() -> None:
    library = Library(tells={"borrow-book": [("BookReturned", {"loan": LOAN})]})
    with pytest.raises(Faulty, match="borrow-book told BookReturned, which its document does not say"):
        Run(library)()


def test_a_command_that_must_be_confirmed_is_not_sent_unasked() -> None:
    library = Library(confirmation="required")
    with pytest.raises(Refused, match="return-book needs the person's word: It goes back"):
        Run(library)()
    assert "ReturnBook" not in [envelope["type"] for envelope in library.sent]
    assert Run(Library(confirmation="required"))(confirmed=True).answer == REPLY


def test_an_outcome_that_never_comes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acceptance.stream.FIRST_PAUSE", 0.0)
    library = Library(tells={"borrow-book": [("BookFetched", {"loan": LOAN, "fetched_pct": 1})]})
    with pytest.raises(Refused, match="no outcome within 0 s"):
        Run(library)(patience=0.05)


def test_a_sentence_no_recipe_answers_is_refused_with_those_there_are() -> None:
    with pytest.raises(Refused, match="the service has: pay-a-fine"):
        Run(Library())(sentence="fly to the moon")


def test_numbers_and_preferences_of_the_person_count() -> None:
    library = Library()
    Run(library)(numbers={"days": 2, "pages": 9}, prefer="moby")
    assert library.sent[0]["data"] == {"title": "Moby Dick", "branch": "north", "days": 2, "pages": 9}


def test_a_preference_that_nothing_meets_is_refused() -> None:
    with pytest.raises(Refused, match="nothing here is called emma"):
        Run(Library())(prefer="emma")


def test_an_approval_command_that_fails_is_told_with_its_words() -> None:
    with pytest.raises(Unreachable, match=r"ended with 3: no such READ-BOOK"):
        Run(Library())(approve_with="sh -c 'echo no such {code} >&2; exit 3'")


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(Problem, match="is no address of a manifest"):
        Run(Library())(manifest="library.example")
