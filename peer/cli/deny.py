"""``best-peer deny``: turn away an agent that waits (F12, conformance R11)."""

from __future__ import annotations

from peer.cli.codes import read_code
from peer.cli.options import Flag
from peer.cli.place import data_folder
from peer.cli.show import print_json, safe


def deny(code: str, /, *, json: Flag = False) -> None:
    """Turn an agent away: its next poll is told so, and its code opens nothing any more.

    A code that is approved already is not denied: revoke takes its key back.

    Args:
        code: The code that the agent shows, such as BCDF-GHJK.
        json: One JSON object on standard output: whom it turned away.
    """
    user_code = read_code(code)

    import trio

    from peer.cli.door import Door

    denied = trio.run(Door.find(data_folder()).post, "/admin/deny", {"user_code": user_code})
    if json:
        print_json(denied)
        return
    agent = denied.get("agent_label")
    whom = safe(denied.get("name")) if agent is None else f"{safe(agent)}, as {safe(denied.get('name'))}"
    print(f"{user_code} is denied: {whom}. The agent's next poll is told so.")
