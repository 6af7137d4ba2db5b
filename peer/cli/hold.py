"""``best-peer hold``: the owner takes devices for themselves, for a time or while a program runs (F29)."""

from __future__ import annotations

import contextlib
import secrets
import signal
import time
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import Parameter

from actors.messages.times import time_ms
from actors.rules.holding import MOST_SECONDS, check_until, clean_reason
from actors.rules.refusal import Refusal
from peer.cli.holding import names, say_before, say_held
from peer.cli.options import DeviceName, Duration, Flag, Line, Moment, ProcessId, moment_text
from peer.cli.outcome import Failed, Refused, say
from peer.cli.place import data_folder
from peer.cli.processes import LOOK_SECONDS, NoProcess, Process, find_process
from peer.cli.show import dicts, print_json, safe
from peer.folder import FolderError
from peer.units import HOUR

if TYPE_CHECKING:
    from collections.abc import Callable

    from peer.cli.door import Door

WHILE_SECONDS: Final = 12 * HOUR
"""The longest that a hold by --while lasts unless it is said: whoever watches the process may be killed."""

STILL_SECONDS: Final = 10.0
"""Between two looks whether the hold still stands: each is a line in the peer's log."""

AGAIN_SECONDS: Final = 2.0
"""Between two tries to release at the end."""

RELEASE_SECONDS: Final = 60.0
"""How long a release at the end of --while is tried, while the peer does not answer."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def hold(
    *,
    for_: Annotated[Duration | None, Parameter(name="--for")] = None,
    until: Moment | None = None,
    while_: Annotated[ProcessId | None, Parameter(name="--while")] = None,
    device: DeviceName | None = None,
    now: Flag = False,
    reason: Line | None = None,
    json: Flag = False,
) -> None:
    """Take devices for yourself: they take no new work until the hold ends.

    With neither --for, --until nor --while a hold lasts until best-peer release. It is kept across restarts.
    What runs there runs on, unless --now. A newer hold on a device takes the place of an older one.

    Args:
        for_: How long: 2h, 30m, 2d; 366d at most.
        until: When it ends: 2026-10-20T22:00:00Z, or 2026-10-20T22:00 in this machine's zone.
        while_: While this process runs, 12 hours at most unless --for or --until says otherwise. Stays in
            the terminal; Ctrl-C releases. It releases its own hold alone. On Linux only.
        device: This device alone, by its id or UUID; else every one, the CPU included.
        now: End what runs there, and what is starting as soon as it starts; each holder is told.
        reason: One line that every approved client reads.
        json: One JSON object on standard output.
    """
    body = _body(for_, until, device, reason, now=now)
    process = None
    if while_ is not None:
        process = _process(while_)
        if for_ is None and until is None:
            body["seconds"] = WHILE_SECONDS

    import trio

    from peer.cli.door import Door

    holding = _Holding(Door.find(data_folder()), body, is_json=json)
    if process is None:
        trio.run(holding.take)
    else:
        trio.run(holding.stay, process)


def new_id() -> str:
    """The id of a hold to be: this terminal's to choose, so that it can release one whose answer it lost."""
    return f"hold-{secrets.token_urlsafe(16)}"


def _body(
    seconds: int | None, until: str | None, device: str | None, reason: str | None, *, now: bool
) -> dict[str, Any]:
    if seconds is not None and until is not None:
        raise Refused("a hold ends at a time or after a while: give --until or --for, not both")
    if seconds is not None and seconds > MOST_SECONDS:
        raise Refused("--for: a hold ends within 366 days; leave --for out and end it with best-peer release")
    body: dict[str, Any] = {"hold": new_id(), "now": now}
    if until is not None:
        try:
            body["until"] = moment_text(until)
        except ValueError as error:
            raise Refused(f"--until {safe(until, 40)} is refused: {error}") from None
    try:  # the door's own rules, before anything is said
        if until is not None:
            check_until(time_ms(body["until"]), round(time.time() * 1000))
        clean_reason(reason)
    except Refusal as refusal:
        raise Refused(refusal.message) from refusal
    given = {"seconds": seconds, "device": device, "reason": reason}
    return body | {name: value for name, value in given.items() if value is not None}


def _process(pid: int) -> Process:
    try:
        return find_process(pid)
    except NoProcess as none:
        raise Refused(
            f"--while {pid}: {none}; hold with --for or --until and end it with best-peer release"
        ) from None


class _Holding:
    """One hold of this terminal's."""

    def __init__(self, door: Door, body: dict[str, Any], *, is_json: bool) -> None:
        self._door = door
        self._body = body
        self._is_json = is_json
        self._ended = ""
        self._is_asked = False

    async def take(self) -> None:
        """Hold, and say who is affected, before and after."""
        from peer.cli.door import REVOKE_SECONDS

        if not self._is_json:
            named = {"device": self._body["device"]} if "device" in self._body else None
            say_before(await self._door.get("/admin/holds", named), now=self._body["now"])
        self._is_asked = True
        answer = await self._door.post("/admin/hold", self._body, seconds=REVOKE_SECONDS)
        if self._is_json:
            print_json(answer)
        else:
            say_held(answer, now=self._body["now"], seconds=self._body.get("seconds"))

    async def stay(self, process: Process) -> None:
        """Hold while a process runs, or until Ctrl-C, a release elsewhere or the hold's own end."""
        import trio

        failed: BaseExceptionGroup | None = None
        try:
            with trio.open_signal_receiver(*_SIGNALS) as signals:
                async with trio.open_nursery() as nursery:

                    def end(why: str) -> None:
                        self._ended = self._ended or why
                        nursery.cancel_scope.cancel(why)

                    async def until_signal() -> None:
                        async for _ in signals:
                            end("signal")

                    nursery.start_soon(until_signal)
                    await self.take()
                    name = safe(process.name, 40)
                    self._note(f"That is while process {process.pid} ({name}) runs; Ctrl-C releases.")
                    nursery.start_soon(self._until_gone, process, end)
                    nursery.start_soon(self._until_released, end)
        except BaseExceptionGroup as group:
            failed = group
        if failed is not None:
            error = _only(failed)
            if self._is_asked and not isinstance(error, Refused):
                await self._let_go()
            raise error from failed
        if self._ended == "released":
            self._note("The hold is over: it was released elsewhere, held anew, or its time came.")
            return
        await self._release("The process has ended." if self._ended == "gone" else "")

    async def _until_gone(self, process: Process, end: Callable[[str], None]) -> None:
        import trio

        while process.runs():  # noqa: ASYNC110 - the kernel makes no event of it
            await trio.sleep(LOOK_SECONDS)
        end("gone")

    async def _until_released(self, end: Callable[[str], None]) -> None:
        import trio

        is_away = False
        while True:
            await trio.sleep(STILL_SECONDS)
            try:
                answer = await self._again().get("/admin/holds")
            except (Failed, FolderError) as away:
                if not is_away:
                    self._note(f"{away}. The hold is kept, and released once the peer answers again.")
                is_away = True
                continue
            is_away = False
            if all(each.get("hold") != self._body["hold"] for each in dicts(answer.get("holds"))):
                end("released")
                return

    async def _let_go(self) -> None:
        """Release what may be held for all that no answer came: nobody would watch the process any more.

        Nor where nobody reads what is printed any more, and this ends.
        """
        with contextlib.suppress(Failed, Refused, FolderError, OSError):
            answer = await self._again().post("/admin/release", {"hold": self._body["hold"]})
            if released := dicts(answer.get("released")):
                self._note(f"Released: {names(str(each.get('device')) for each in released)}.")

    async def _release(self, why: str) -> None:
        import trio

        begun = trio.current_time()
        while True:
            try:
                answer = await self._again().post("/admin/release", {"hold": self._body["hold"]})
            except (Failed, FolderError) as away:
                if trio.current_time() - begun > RELEASE_SECONDS:
                    raise Failed(f"{away}; the hold is not released: best-peer release ends it") from away
                await trio.sleep(AGAIN_SECONDS)
            else:
                released = [str(each.get("device")) for each in dicts(answer.get("released"))]
                what = f"Released: {names(released)}." if released else "Nothing was held any more."
                self._note(f"{why} {what}".strip())
                return

    def _again(self) -> Door:
        """The door as it is found now: the peer may have been started again meanwhile."""
        return type(self._door).find(self._door.folder)

    def _note(self, text: str) -> None:
        """A line for the person; a program reads its JSON alone."""
        if self._is_json:
            say(text)
        else:
            print(safe(text, 400), flush=True)


def _only(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What a nursery's one error was."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
