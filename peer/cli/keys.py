"""``best-peer keys``: who is let in, what each key may do and does, and who waits (F12, F13)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from peer.cli.keylines import holds_words, is_collectors, may_words
from peer.cli.options import Flag
from peer.cli.outcome import Refused
from peer.cli.place import data_folder
from peer.cli.show import dicts, local_time_of_ms, pairs, print_json, safe
from peer.cli.waiting import Waiting
from peer.units import DAY, describe_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_NAME: Final = 256
SOON: Final = 7 * DAY
"""An end that is nearer is told as the time until then, a later one by its date."""

Json = dict[str, Any]


def keys(
    name: str | None = None,
    /,
    *,
    all: Flag = False,  # noqa: A002 - the option's name
    json: Flag = False,
) -> None:
    """List who is let in: what each key may do and holds, when it ends and when it was last used.

    Sign-ins that wait for you come first. A key that has ended is listed while work of it runs.

    Args:
        name: Only keys of this connection's name, or the one of this holder id, ended or not.
        all: Keys that have ended too.
        json: One JSON object on standard output.
    """
    if name is not None and not 0 < len(name) <= MAX_NAME:
        raise Refused("expected a connection's name or a holder id; best-peer keys lists them")
    parameters = {**({"all": "1"} if all else {}), **({} if name is None else {"name": name})}

    import trio

    from peer.cli.door import Door

    answer = trio.run(Door.find(data_folder()).get, "/admin/keys", parameters)
    if json:
        print_json(answer)
    else:
        _show(answer)


def _show(answer: Json) -> None:
    waiting, found = dicts(answer.get("waiting")), dicts(answer.get("keys"))
    now, began = _moment(answer, "now_ms"), _moment(answer, "began_ms")
    for number, each in enumerate(waiting):
        if number:
            print()
        _waiting(each)
    for number, key in enumerate(found, len(waiting)):
        if number:
            print()
        print(f"{safe(key.get('name'))}  {safe(key.get('holder'))}")
        pairs(_lines(key, now, began))
    more = answer.get("more_ended")
    ended = more if isinstance(more, int) else 0
    if (waiting or found) and (ended or not found):
        print()
    if not found:
        how = "" if waiting else " An agent that signs in shows a code: best-peer approve CODE."
        print(f"Nobody is let in.{how}")
    if ended:
        verb, whose = ("key has", "it") if ended == 1 else ("keys have", "them")
        print(f"{ended} more {verb} ended, and nothing of {whose} runs: best-peer keys --all.")


def _waiting(waiting: Json) -> None:
    code = safe(waiting.get("user_code"))
    is_approved = waiting.get("state") == "approved"
    print(f"{code}  {'approved, and its agent has not come for its key' if is_approved else 'waits for you'}")
    pairs(Waiting.read(waiting).lines())
    if is_approved:
        print(f"  best-peer revoke {safe(waiting.get('name'))} takes that back.")
    else:
        print(f"  best-peer approve {code} lets it in, best-peer deny {code} turns it away.")


def _lines(key: Json, now: int, began: int) -> Iterator[tuple[str, str]]:
    """A key in words, one line a matter."""
    yield "state", _state(key, now)
    if key.get("kept") is False:
        yield "", "the disk has not kept that yet: free room, or it opens again when the peer is started"
    yield "agent", _agent(key)
    yield "may", may_words(key)
    if not is_collectors(key):
        yield "holds", holds_words(key)
    yield "used", _used(key, now, began)


def _state(key: Json, now: int) -> str:
    state = str(key.get("state", "unknown"))
    ends = key.get("expires_ms")
    if state == "open":
        if not isinstance(ends, int):
            return "open until you revoke it"
        left = (ends - now) // 1000
        when = f"in {describe_duration(max(0, left))}" if left < SOON else f"on {local_time_of_ms(ends)[:10]}"
        return f"open, ends {when}"
    if state == "expired" and isinstance(ends, int):
        return f"ran out {_ago(ends, now)}{_work(key, now)}"
    revoked = key.get("revoked_ms")
    if state == "revoked" and isinstance(revoked, int):
        how = "given back by its agent" if key.get("revoked_by") == "agent" else "taken back"
        return f"{how} {_ago(revoked, now)}{_work(key, now)}"
    return state


def _work(key: Json, now: int) -> str:
    ended = key.get("work_ended_ms")
    if isinstance(ended, int):
        return f"; its work had ended {_ago(ended, now)}"
    match key.get("work"):
        case "ending":
            return "; its work is being ended"
        case "running":
            return f"; its work runs on, and best-peer revoke {key.get('holder')} ends it"
        case _:
            return "; nothing of it runs"


def _agent(key: Json) -> str:
    address = key.get("address")
    whence = "" if address is None else f", from {address}"
    issued = key.get("issued_ms")
    since = f", let in {local_time_of_ms(issued)[:16]}" if isinstance(issued, int) else ""
    return f"{key.get('agent_label') or 'does not say'}{whence}{since}"


def _used(key: Json, now: int, began: int) -> str:
    last, streams = key.get("last_used_ms"), key.get("streams")
    if isinstance(last, int):
        said = _ago(last, now)
    elif isinstance(issued := key.get("issued_ms"), int) and issued >= began:
        said = "not yet"
    else:
        said = f"not since the peer was started {_ago(began, now)}"
    if isinstance(streams, int) and streams:
        said += f"; {streams} event {'stream' if streams == 1 else 'streams'} open"
    return said


def _ago(then: int, now: int) -> str:
    seconds = max(0, now - then) // 1000
    if seconds < 1:
        return "just now"
    return f"{describe_duration(seconds)} ago" if seconds < SOON else f"on {local_time_of_ms(then)[:10]}"


def _moment(answer: Json, name: str) -> int:
    moment = answer.get(name)
    return moment if isinstance(moment, int) else 0
