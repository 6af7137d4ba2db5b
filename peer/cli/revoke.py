"""``best-peer revoke``: take a key back, and what runs under it (F13)."""

from __future__ import annotations

from typing import Any

from peer.cli.options import Flag
from peer.cli.outcome import SYSTEM, Refused, say
from peer.cli.place import data_folder
from peer.cli.show import print_json, safe

MAX_NAME = 256


def revoke(name: str, /, *, keep_running: Flag = False, json: Flag = False) -> int | None:
    """Take a key back: from now on it opens nothing, and what it runs ends.

    Every open key of that name is taken back; who was approved under it and has not come for a key gets none.
    What keys of that name left running that were taken or given back before ends as well. Exits 2 where the
    disk did not keep it: the key is closed until the peer starts again.

    Args:
        name: The connection's name, or the holder id that best-peer keys shows.
        keep_running: Leave its work running.
        json: One JSON object on standard output: what was taken back, and what still runs.
    """
    if not 0 < len(name) <= MAX_NAME:
        raise Refused("expected a connection's name or a holder id; best-peer keys lists them")

    import trio

    from peer.cli.door import REVOKE_SECONDS, Door

    door = Door.find(data_folder())
    body = {"name": name, "keep_running": keep_running}

    async def ask() -> dict[str, Any]:
        return await door.post("/admin/revoke", body, seconds=REVOKE_SECONDS)

    answer = trio.run(ask)
    if json:
        print_json(answer)
    else:
        _show(answer, keep_running=keep_running)
    if answer.get("kept") is False:
        say(_until_the_peer_starts(answer))
        return SYSTEM
    return None


def _show(answer: dict[str, Any], *, keep_running: bool) -> None:
    taken, closed = answer.get("revoked", ()), answer.get("closed_before", ())
    for key in taken:
        if key.get("ran_out"):
            print(f"Closed before: {_key(key)}. Its time had run out, and it is taken back as well.")
        else:
            print(f"Taken back: {_key(key)}. It opens nothing any more.")
    for each in answer.get("withdrawn", ()):
        code, whose = safe(each.get("user_code")), safe(each.get("name"))
        print(f"Withdrawn: {code} ({whose}). Its agent had not come for its key, and gets none.")
    for key in closed:
        print(f"Closed before: {_key(key)}. What it left running ends now.")
    if taken or closed:  # under a key that was not fetched nothing ever ran
        print(_work(answer, keep_running=keep_running))


def _until_the_peer_starts(answer: dict[str, Any]) -> str:
    """What is so for now alone, since the disk did not keep it, and what to do."""
    until = "the key is closed only until the peer starts again"
    if not answer.get("revoked"):
        until = "what still runs is ended only until the peer starts again"
        if not answer.get("closed_before"):
            until = "once the peer starts again, the agent could still fetch its key"
    return (
        f"best-peer: the disk did not keep this: {until}; free room on the disk and run the same revoke "
        "again, or look at best-peer keys: the peer goes on trying to write it"
    )


def _work(answer: dict[str, Any], *, keep_running: bool) -> str:
    """What becomes of what ran under the keys."""
    if keep_running:
        return "What it runs is left running."
    running = [safe(each) for each in answer.get("still_running", ())]
    if running:
        why = "best-peer status says whether what runs it answers"
        return f"Still running: {', '.join(running)}. The peer goes on trying to end it; {why}."
    return "Nothing of it runs any more."


def _key(key: dict[str, Any]) -> str:
    return f"{safe(key.get('name'))} ({safe(key.get('holder'))})"
