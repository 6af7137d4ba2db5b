"""What is kept of the looks at the cards for those that live (F18)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.looks import FIGURES_SECONDS, CardUse, Looks, OwnProcess, Seen
from actors.state.workloads import Job
from adapters.gpu.port import DeviceProcess

if TYPE_CHECKING:
    from trio.testing import MockClock

JOB = Job(
    "job-1", "h", "image", "gpu-0", "GPU-1", 5, boxed=False, command="run", correlation="c", stage_since="t"
)


def card(pid: int, held: int | None, unlisted: int | None) -> dict[str, CardUse | None]:
    """A card on which the job has one process."""
    own = OwnProcess(JOB.id, DeviceProcess(pid, held, "compute"))
    return {"GPU-1": CardUse(own=(own,), unlisted=unlisted)}


async def test_a_look_without_a_figure_keeps_both_of_an_earlier_one_and_its_own_processes(
    mock_clock: MockClock,
) -> None:
    looks = Looks()
    looks.keep([JOB], card(7, 4, 1))
    mock_clock.jump(1)
    for lacking in (card(8, None, 2), card(8, 5, None)):
        looks.keep([JOB], lacking)
        assert looks.seen(JOB.id) == Seen(frozenset({(8, None)}), 4, 1, 0.0)
    looks.keep([JOB], card(8, 6, 3))
    assert looks.seen(JOB.id) == Seen(frozenset({(8, None)}), 6, 3, 1.0)


async def test_figures_are_kept_no_longer_than_they_say_something_however_often_they_lack(
    mock_clock: MockClock,
) -> None:
    looks = Looks()
    looks.keep([JOB], card(7, 4, 1))
    mock_clock.jump(FIGURES_SECONDS)
    looks.keep([JOB], card(7, 4, None))
    assert looks.seen(JOB.id) == Seen(frozenset({(7, None)}), 4, 1, 0.0)
    mock_clock.jump(1)
    looks.keep([JOB], card(7, 4, None))
    assert looks.seen(JOB.id) == Seen(frozenset({(7, None)}), 4, None, FIGURES_SECONDS + 1)


async def test_one_that_a_look_did_not_show_is_kept_as_it_was_and_one_that_ended_is_not(
    mock_clock: MockClock,
) -> None:
    looks = Looks()
    looks.keep([JOB], card(7, 4, 1))
    mock_clock.jump(10 * FIGURES_SECONDS)
    for shown in ({"GPU-1": None}, {"GPU-1": CardUse(unlisted=9)}, {}):
        looks.keep([JOB], shown)
        assert looks.seen(JOB.id) == Seen(frozenset({(7, None)}), 4, 1, 0.0)
    looks.keep([], card(7, 4, 1))
    assert looks.seen(JOB.id) is None
