"""Whether what runs programs answers now, for the owner to see while it does not (F16)."""

from typing import Any, Final

import trio

from actors.house import House
from adapters.runtime.port import RuntimeUnavailable

LOOK_SECONDS: Final = 2.0
"""How long it has: a container engine that is well lists a peer's containers in a fraction of that."""


async def runtime_report(house: House) -> dict[str, Any]:
    """The runtime's name, and whether it answers; what has not answered in time does not.

    Work keeps its phase while nothing is known of it, so nothing else shows that it is away.
    """
    answers = False
    with trio.move_on_after(LOOK_SECONDS):
        try:
            await house.runtime.running()
        except RuntimeUnavailable:
            pass
        else:
            answers = True
    return {"name": house.runtime.name, "answers": answers}
