"""The owner takes devices for themselves and gives them back, for the command line (F29)."""

from collections.abc import Iterable
from typing import Annotated, Any

import attrs
import msgspec
import trio
from quart import Request, Response

from actors.holding import Wanted, hold, meant, release
from actors.house import House
from actors.messages.times import time_ms, time_text
from actors.rules.holding import MOST_SECONDS
from actors.rules.refusal import Refusal
from actors.state.holds import HOST, Hold
from actors.state.workloads import Deployment, Workload
from adapters.gpu.port import Device
from peer.door.admin_wire import json_answer, read_body
from peer.door.context import Door

END_WAIT_SECONDS = 12.0
"""How long a hold waits for what it ends before it names what has not."""

_Device = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
_Id = Annotated[str, msgspec.Meta(pattern=r"^hold-[A-Za-z0-9_-]{16,64}\Z")]


class HoldRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a hold: its end is named by a time or by how long it lasts, or there is none."""

    hold: _Id
    device: _Device | None = None
    until: Annotated[str, msgspec.Meta(max_length=64)] | None = None
    seconds: Annotated[int, msgspec.Meta(ge=1, le=MOST_SECONDS)] | None = None
    reason: Annotated[str, msgspec.Meta(max_length=1024)] | None = None
    now: bool = False


class ReleaseRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a release: one device's, what one hold holds still, or every one."""

    device: _Device | None = None
    hold: _Id | None = None


class HoldsAdmin:
    """The owner's side of a machine's devices. Whether the owner asks is seen before (`Admin.check`)."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._house: House = door.house

    async def look(self, request: Request) -> Response:
        """GET: the holds that stand, and what runs on the devices that a hold would take.

        `replaces` is those that a hold would take the place of, one a device.
        """
        device = request.args.get("device", "")[:128] or None
        devices = await meant(self._house, device)
        return json_answer(
            {
                "devices": [{"id": each.id, "uuid": each.uuid} for each in devices],
                "holds": self.standing(),
                "replaces": [_hold(each) for each in self._standing_on(devices)],
                "work": self._work({each.uuid: each.id for each in devices}, is_every=device is None),
            }
        )

    async def hold(self, request: Request) -> Response:
        """POST: take devices."""
        asked = await read_body(request, HoldRequest)
        before = self._standing_on(await meant(self._house, asked.device))
        held = await hold(
            self._house,
            Wanted(
                id=asked.hold,
                device=asked.device,
                until_ms=self._until(asked),
                reason=asked.reason,
                ends_work=asked.now,
            ),
        )
        work = self._work({each.device_uuid: each.device for each in held}, is_every=asked.device is None)
        if asked.now:
            await self._wait_for_end([each["workload"] for each in work])
        return json_answer(
            {
                "hold": asked.hold,
                "held": [_hold(each) for each in held],
                "replaced": [_hold(each) for each in before if each.id != asked.hold],
                "work": work,
                "still_running": self._ending([each["workload"] for each in work]),
            }
        )

    async def release(self, request: Request) -> Response:
        """POST: give devices back."""
        asked = await read_body(request, ReleaseRequest)
        released = await release(self._house, device=asked.device, identifier=asked.hold)
        return json_answer({"released": [_hold(each) for each in released], "holds": self.standing()})

    def standing(self) -> list[dict[str, Any]]:
        """The holds whose time has not come."""
        now = time_text(self._house.clock.now_ms())
        return [_hold(each) for each in self._house.store.world.holds if each.stands_at(now)]

    def _standing_on(self, devices: Iterable[Device]) -> list[Hold]:
        """The holds on devices, each under the name that its device has now."""
        now, holds = time_text(self._house.clock.now_ms()), self._house.store.world.holds
        found = [(each, holds.on(each.uuid)) for each in devices]
        return [
            attrs.evolve(held, device=each.id, device_uuid=each.uuid)
            for each, held in found
            if held is not None and held.stands_at(now)
        ]

    def affected(self) -> list[dict[str, Any]]:
        """What runs or starts on devices that are held, and under which key's name; `ends`: by the hold."""
        world, now = self._house.store.world, time_text(self._house.clock.now_ms())
        everything: Iterable[Workload] = (*world.deployments.values(), *world.jobs.values())
        found = []
        for each in everything:
            held = world.holds.on(each.device_uuid or HOST)
            if held is not None and held.stands_at(now):
                ends = each.id in world.owners_ends or (held.ends_work and not each.started)
                found.append({**self._row(each, each.device or HOST), "ends": ends})
        return found

    def used(self) -> dict[str, str]:
        """Cards that their owner uses, by UUID, each with what shows it: for the owner's eyes alone."""
        return dict(self._house.occupied.reasons())

    def _until(self, asked: HoldRequest) -> int | None:
        if asked.until is not None and asked.seconds is not None:
            raise Refusal("INVALID_HOLD", "a hold ends at a time or after a while; send until or seconds")
        if asked.seconds is not None:
            return self._house.clock.now_ms() + asked.seconds * 1000
        if asked.until is None:
            return None
        try:
            return time_ms(asked.until)
        except (ValueError, OverflowError) as error:
            raise Refusal(
                "INVALID_HOLD", "until is no time; send RFC 3339 with its offset, 2026-10-20T22:00:00Z"
            ) from error

    def _work(self, devices: dict[str, str], *, is_every: bool) -> list[dict[str, Any]]:
        """What runs or starts on devices, by their UUIDs, and under which key's name.

        Where every device is meant, also on one that cannot be seen now.
        """
        world = self._house.store.world
        everything: Iterable[Workload] = (*world.deployments.values(), *world.jobs.values())
        found = []
        for each in everything:
            device = devices.get(HOST if each.device_uuid is None else each.device_uuid)
            if device is None:
                if not is_every:
                    continue
                device = each.device or HOST
            found.append(self._row(each, device))
        return found

    def _row(self, workload: Workload, device: str) -> dict[str, Any]:
        key = self._house.store.ring.get(workload.holder)
        is_served = isinstance(workload, Deployment)
        return {
            "workload": workload.id,
            "kind": "deployment" if is_served else "job",
            "what": workload.model if isinstance(workload, Deployment) else workload.image,
            "device": device,
            "phase": workload.phase,
            "started": workload.started,
            "holder": workload.holder,
            "name": None if key is None else key.name,
        }

    def _ending(self, workloads: Iterable[str]) -> list[str]:
        ends = self._house.store.world.owners_ends
        return [each for each in workloads if each in ends]

    async def _wait_for_end(self, workloads: list[str]) -> None:
        events = self._house.store.events
        with trio.move_on_after(END_WAIT_SECONDS):
            while self._ending(workloads):
                await events.wait_for_news(events.end)


def _hold(held: Hold) -> dict[str, Any]:
    return {
        "hold": held.id,
        "device": held.device,
        "device_uuid": held.device_uuid,
        "since": held.since,
        "until": held.until,
        "reason": held.reason,
        "now": held.ends_work,
    }
