"""One line of `best-peer check`, and how looks are run: each bounded, none ending the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import attrs
import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

State = Literal["ok", "warning", "problem"]
"""ok: as it should be, or nothing to judge. warning: the peer serves, and the owner may want to mend it.
problem: the peer does not start, or does not serve what its settings say."""

STATES: Final[tuple[State, ...]] = ("ok", "warning", "problem")
"""From fine to worst."""
LOOK_SECONDS: Final = 10.0
"""How long one look may take, unless it says otherwise."""


@attrs.frozen
class Line:
    """What one look found, in words for people.

    Args:
        state: see `State`.
        subject: what it is about, one word.
        what: what was found.
        remedy: what to do; None where there is nothing to do.
    """

    state: State
    subject: str
    what: str
    remedy: str | None = None


def ok(subject: str, what: str) -> Line:
    """Nothing to do."""
    return Line("ok", subject, what)


def warning(subject: str, what: str, remedy: str) -> Line:
    """The peer serves, and not as well as it might."""
    return Line("warning", subject, what, remedy)


def problem(subject: str, what: str, remedy: str) -> Line:
    """The peer does not serve, or not what it should."""
    return Line("problem", subject, what, remedy)


def worst(lines: Iterable[Line]) -> State:
    """The worst state among lines; ok where there are none."""
    return max((line.state for line in lines), key=STATES.index, default="ok")


@attrs.frozen
class Look:
    """One thing to look at.

    Args:
        subject: what its lines are about, for when it has none to say.
        run: looks.
        seconds: how long it may take.
    """

    subject: str
    run: Callable[[], Awaitable[Sequence[Line]]]
    seconds: float = LOOK_SECONDS


def in_thread(look: Callable[[], Sequence[Line]]) -> Callable[[], Awaitable[Sequence[Line]]]:
    """A look that blocks, as one that does not; a file system that hangs keeps its thread and nobody else."""

    async def run() -> Sequence[Line]:
        return await trio.to_thread.run_sync(look, abandon_on_cancel=True)

    return run


async def look_at_all(looks: Sequence[Look], told: Callable[[Line], None]) -> None:
    """Run every look at once, and tell their lines in the looks' order, each as soon as those before it are.

    Args:
        looks: what to look at.
        told: called with each line.
    """
    found: list[Sequence[Line]] = [()] * len(looks)
    ended = [trio.Event() for _ in looks]

    async def take(index: int) -> None:
        found[index] = await lines_of(looks[index])
        ended[index].set()

    async with trio.open_nursery() as nursery:
        for index in range(len(looks)):
            nursery.start_soon(take, index)
        for index, event in enumerate(ended):
            await event.wait()
            for line in found[index]:
                told(line)


async def lines_of(look: Look) -> Sequence[Line]:
    """What one look says within its time; that it could not look is a line as well."""
    try:
        with trio.move_on_after(look.seconds):
            return await look.run()
    except Exception as error:  # noqa: BLE001 - one look that fails must not hide what the others found
        return (
            problem(
                look.subject,
                f"could not be looked at ({type(error).__name__}: {error})",
                "mend that if it is this machine's; otherwise report it, it is a fault of best-peer",
            ),
        )
    return (
        problem(
            look.subject,
            f"gave no answer within {look.seconds:g} seconds",
            "see whether the disk, the network or the program behind it hangs",
        ),
    )
