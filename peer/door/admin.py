"""The owner's routes, for the command line: who may use them, and how the machine stands (F14).

The admin token is checked before anything else: without it an approval learns neither whether a code waits
nor which scopes there are.
"""

from quart import Request, Response

from actors.answering import runtime_report
from actors.devicereport import cards_report
from actors.reports import Machine, hardware_state, workloads
from actors.rules.refusal import Refusal
from peer.door.admin_holds import HoldsAdmin
from peer.door.admin_keys import KeysAdmin
from peer.door.admin_wire import json_answer
from peer.door.context import Door, bearer


class Admin:
    """The owner's side of one door."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._machine = Machine(door.house)
        self.keys = KeysAdmin(door)
        self.holds = HoldsAdmin(door)

    def check(self, request: Request) -> None:
        """Whether the request comes from the owner.

        Raises:
            Refusal: UNAUTHORIZED.
        """
        proof = bearer(request.headers.get("authorization"))
        if proof is None or not self._door.registrar.attest(proof):
            raise Refusal(
                "UNAUTHORIZED",
                "this is the owner's, who sends the admin token kept in the peer's data folder",
            )

    async def status(self, request: Request) -> Response:  # noqa: ARG002 - one signature for all views
        """GET: devices with who is on them, holds, workloads and keys, for the owner."""
        door = self._door
        hardware = await hardware_state(self._machine, None, instance=door.instance, version=door.version)
        now = door.house.clock.now_ms()
        return json_answer(
            {
                **hardware,
                "runtime": await runtime_report(door.house),
                "cards": await cards_report(door.house),
                "busy": self.holds.used(),
                "endpoint": door.endpoint,
                "data": str(door.data),
                "holds": self.holds.standing(),
                "affected": self.holds.affected(),
                "workloads": workloads(door.house, None),
                "keys": [self.keys.key(key, now) for key in door.house.store.ring.all()],
                "streams": len(door.streams),
            }
        )
