"""``best-peer approve``: let an agent in that waits for it (F12)."""

from __future__ import annotations

import sys
from typing import Any, Final, TextIO, cast

import attrs
import msgspec

from actors.rules.grants import check_asked, default_expiry, scopes_when_unsaid
from actors.rules.refusal import Refusal
from actors.state.keys import Grant, Scope
from peer.cli.codes import read_code
from peer.cli.grants import grant_words
from peer.cli.namesakes import Namesakes
from peer.cli.options import Count, Duration, Flag, Size, Words
from peer.cli.outcome import Refused
from peer.cli.place import data_folder
from peer.cli.show import can_ask, confirm, pairs, print_json, safe
from peer.cli.waiting import Waiting

_ENDED: Final = {
    "used": ("CODE_USED", "was used already: its agent has its key"),
    "approved": (
        "CODE_APPROVED",
        "is approved already: its agent fetches its key; to take it back: best-peer revoke {name}",
    ),
    "denied": ("CODE_DENIED", "was denied: ask the agent to begin its sign-in again"),
    "expired": ("CODE_EXPIRED", "has run out: ask the agent to begin its sign-in again"),
}
"""How a code stands that waits no more, by its state: the door's own error code, and what to do."""

_UNKNOWN: Final = (
    "UNKNOWN_CODE",
    (
        "waits for nobody: look at the code again, it stands on the agent's side; if the peer was started "
        "since, ask the agent to begin its sign-in again"
    ),
)


def approve(
    code: str,
    /,
    *,
    may: Words | None = None,
    memory: Size | None = None,
    deployments: Count | None = None,
    jobs: Count | None = None,
    workspaces: Count = 8,
    expires: Duration | None = None,
    open_jobs: Flag = False,
    accelerators_only: Flag = False,
    yes: Flag = False,
    json: Flag = False,
) -> None:
    """Let an agent in: its next poll gets a key.

    Approved with nothing more said, the key may do everything. With --memory alone it may send every command,
    and sees, prompts and ends its own workloads only.

    Args:
        code: The code that the agent shows, such as BCDF-GHJK.
        may: What the key may do: deploy, jobs, prompt, workspaces, all; or metrics, which stands alone. This
            version has no workspaces yet.
        memory: The share: most device memory that its workloads may hold together, such as 40G.
        deployments: Most deployments it may have at once.
        jobs: Most jobs it may have at once.
        workspaces: Most workspaces it may own.
        expires: How long the key is good for: 8h, 30m, 2d; 366d at most, 8h for a session's.
        open_jobs: Its jobs run outside the closed box that a key with a share has.
        accelerators_only: It never sees or uses this host's CPU.
        yes: Do not ask.
        json: One JSON object on standard output: whom it let in and what was granted.
    """
    user_code = read_code(code)
    scopes = scopes_when_unsaid(memory) if may is None else may
    grant = Grant(
        scopes=cast("tuple[Scope, ...]", tuple(dict.fromkeys(scopes))),  # _check looks at them
        memory_bytes=memory,
        deployments=deployments,
        jobs=jobs,
        workspaces=workspaces,
        expires_seconds=expires,
        open_jobs=open_jobs,
        accelerators_only=accelerators_only,
    )
    _check(grant, is_session=False)

    import trio

    from peer.cli.door import Door

    door = Door.find(data_folder())
    pending = trio.run(door.get, "/admin/pending", {"user_code": user_code})
    waiting, namesakes = Waiting.read(pending), Namesakes.read(pending)
    name = safe(waiting.name)
    if waiting.state != "pending":
        error, how = _ENDED.get(waiting.state, _UNKNOWN)
        raise Refused(f"{user_code} {how.format(name=name)} ({error})")
    _check(grant, is_session=waiting.is_session)
    if not json:
        _show(user_code, waiting, namesakes, grant, sys.stdout)
    elif not yes and can_ask():
        _show(user_code, waiting, namesakes, grant, sys.stderr)
    if not yes and not confirm("Let it in?"):
        raise Refused(
            f"{user_code} was not approved and still waits, until it runs out; "
            f"to turn its agent away now: best-peer deny {user_code}"
        )
    answer = trio.run(door.post, "/admin/approve", {"user_code": user_code, **attrs.asdict(grant)})
    if json:
        print_json(answer)
        return
    granted = _granted(answer)
    end = default_expiry(grant, is_session=waiting.is_session)
    if granted is not None and granted != attrs.evolve(grant, expires_seconds=end):
        print("It was granted less than that. Its key")
        for words in grant_words(granted, is_session=waiting.is_session):
            print(f"  {words}")
    print(f"{user_code} is approved: the agent's next poll gets its key, as {name}.")
    print(*namesakes.to_take_back(name), sep="\n")


def _show(user_code: str, waiting: Waiting, namesakes: Namesakes, grant: Grant, file: TextIO) -> None:
    """What the person decides on: who waits, and what the key will be allowed to do."""
    print(f"Under {user_code} waits", file=file)
    pairs(waiting.lines(), file=file)
    for line in namesakes.lines(safe(waiting.name)):
        print(line, file=file)
    print("Approved, its key", file=file)
    for words in grant_words(grant, is_session=waiting.is_session):
        print(f"  {words}", file=file)


def _granted(answer: dict[str, Any]) -> Grant | None:
    """What the door granted: whoever decides there may have narrowed it."""
    try:
        return msgspec.convert(answer.get("grant"), Grant)
    except msgspec.ValidationError:
        return None


def _check(grant: Grant, *, is_session: bool) -> None:
    """The door's own rules, asked before anybody is."""
    try:
        check_asked(grant, is_session=is_session)
    except Refusal as refusal:
        raise Refused(f"{refusal.message} ({refusal.code})") from refusal
