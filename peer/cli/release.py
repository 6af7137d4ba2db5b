"""``best-peer release``: devices that their owner held take work again (F29)."""

from __future__ import annotations

from peer.cli.holding import say_released
from peer.cli.options import DeviceName, Flag
from peer.cli.place import data_folder
from peer.cli.show import dicts, print_json


def release(*, device: DeviceName | None = None, json: Flag = False) -> None:
    """Give back what best-peer hold took: every device takes work again, or the one that is named.

    A hold by --while in another terminal is over as well, and says so there.

    Args:
        device: This device alone, by its id or UUID.
        json: One JSON object on standard output.
    """
    import trio

    from peer.cli.door import Door

    door = Door.find(data_folder())
    body = {} if device is None else {"device": device}
    answer = trio.run(door.post, "/admin/release", body)
    if json:
        print_json(answer)
    else:
        say_released(dicts(answer.get("released")), dicts(answer.get("holds")))
