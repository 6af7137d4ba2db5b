"""The owner's keys, for the command line: who waits, who holds what, approve, deny, revoke (F12, F13)."""

from typing import Annotated, Any, Literal, cast

import attrs
import msgspec
import trio
from quart import Request, Response

from actors.keyends import unknown_key
from actors.log.journal import JournalUnavailable
from actors.log.linefile import NoRoom
from actors.messages.commands import PullImage
from actors.rules.grants import scopes_when_unsaid, without_use
from actors.rules.refusal import Refusal
from actors.state.keys import Grant, Key, Scope
from peer.door.admin_wire import json_answer, read_body
from peer.door.context import Door, bearer

STOP_WAIT_SECONDS = 12.0
"""How long a revoke waits for the work to end before it names what has not."""


MOST_NAME = 256
"""Characters of a connection's name, a holder's id or a code."""

_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=MOST_NAME)]


class ApproveRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of an approval: a code, and what is granted. Without scopes, what the share implies."""

    user_code: _Text
    scopes: Annotated[tuple[_Text, ...], msgspec.Meta(max_length=16)] | None = None
    memory_bytes: int | None = None
    deployments: int | None = None
    jobs: int | None = None
    workspaces: int = 8
    expires_seconds: int | None = None
    open_jobs: bool = False
    accelerators_only: bool = False


class DenyRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a denial: a code."""

    user_code: _Text


class RevokeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a revoke: a connection's name or a holder's id."""

    name: _Text
    keep_running: bool = False


class KeysAdmin:
    """The owner's side of a door's keys. Whether the owner asks is seen before (`Admin.check`)."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def pending(self, request: Request) -> Response:
        """GET: whom an approval would let in."""
        waiting = self._door.registrar.look(request.args.get("user_code", "")[:64])
        same_name = self._same_name(waiting.name, waiting.user_code)
        return json_answer({**attrs.asdict(waiting), "same_name": same_name})

    async def approve(self, request: Request) -> Response:
        """POST: let an agent in."""
        asked = await read_body(request, ApproveRequest)
        scopes = scopes_when_unsaid(asked.memory_bytes) if asked.scopes is None else asked.scopes
        grant = Grant(
            scopes=cast("tuple[Scope, ...]", tuple(dict.fromkeys(scopes))),  # check_asked looks at them
            memory_bytes=asked.memory_bytes,
            deployments=asked.deployments,
            jobs=asked.jobs,
            workspaces=asked.workspaces,
            expires_seconds=asked.expires_seconds,
            open_jobs=asked.open_jobs,
            accelerators_only=asked.accelerators_only,
        )
        seen = self._door.registrar.look(asked.user_code)
        # Before the key that comes of it can be one of them.
        same_name = self._same_name(seen.name, seen.user_code)
        try:
            proof = bearer(request.headers.get("authorization")) or ""
            approved = await self._door.registrar.approve(asked.user_code, grant, proof=proof)
        except NoRoom as full:
            raise Refusal(
                "NO_ROOM",
                f"nothing was approved, since the disk has no room to keep it: {full}; "
                "free some and approve again",
                retry_after_seconds=30,
            ) from full
        except JournalUnavailable as error:
            raise Refusal(
                "LOG_UNAVAILABLE",
                "nothing was approved: this peer cannot keep keys right now; approve again in a moment",
                retry_after_seconds=2,
            ) from error
        return json_answer(
            {
                "user_code": approved.user_code,
                "name": approved.name,
                "client_id": approved.client_id,
                "agent_label": approved.agent_label,
                "address": approved.address,
                "grant": attrs.asdict(approved.grant),
                "notes": [f"its key {words}" for words in without_use(approved.grant)],
                "same_name": same_name,
            }
        )

    async def deny(self, request: Request) -> Response:
        """POST: turn an agent away (R11)."""
        asked = await read_body(request, DenyRequest)
        denied = self._door.registrar.deny(asked.user_code)
        return json_answer(
            {
                "user_code": denied.user_code,
                "name": denied.name,
                "client_id": denied.client_id,
                "agent_label": denied.agent_label,
                "address": denied.address,
            }
        )

    async def revoke(self, request: Request) -> Response:
        """POST: take a key back, and what runs under it."""
        asked = await read_body(request, RevokeRequest)
        now = self._door.house.clock.now_ms()
        revoked = await self._door.registrar.revoke(asked.name, ends_work=not asked.keep_running)
        running: list[str] = []
        if not asked.keep_running:
            keys = (*revoked.keys, *revoked.closed_before)
            running = await self._wait_for_end([key.holder for key in keys])
        return json_answer(
            {
                "revoked": [
                    {"name": k.name, "holder": k.holder, "ran_out": k.is_over(now)} for k in revoked.keys
                ],
                "withdrawn": [{"name": a.name, "user_code": a.user_code} for a in revoked.withdrawn],
                "closed_before": [{"name": k.name, "holder": k.holder} for k in revoked.closed_before],
                "kept": revoked.kept,
                "still_running": running,
                "keep_running": asked.keep_running,
            }
        )

    async def keys(self, request: Request) -> Response:
        """GET: who holds what, and who waits. With `all` also keys that have ended and hold nothing.

        `name` is a connection's or a holder's id: its keys alone, ended or not.
        """
        house, registrar = self._door.house, self._door.registrar
        now = house.clock.now_ms()
        name = request.args.get("name", "")[:MOST_NAME]
        ring = house.store.ring
        known = ring.named(name) if name else ring.all()
        if name and not known:
            raise unknown_key(name)
        is_all = bool(name) or "all" in request.args
        shown = [key for key in known if is_all or self._matters(key, now)]
        return json_answer(
            {
                "keys": [self.key(key, now) for key in shown],
                "more_ended": len(known) - len(shown),
                "waiting": [] if name else [attrs.asdict(each) for each in registrar.waiting()],
                "now_ms": now,
                "began_ms": registrar.began_ms,
            }
        )

    def key(self, key: Key, now: int) -> dict[str, Any]:
        """A key as the owner sees it at a moment, in milliseconds since the epoch."""
        door = self._door
        holding = door.house.store.world.holding(key.holder)
        ending = door.house.store.ring.ending_of(key.holder)
        return {
            "name": key.name,
            "holder": key.holder,
            "state": self._state(key, now),
            "grant": msgspec.to_builtins(key.grant),
            "agent_label": key.agent_label,
            "address": key.address,
            "issued_ms": key.issued_ms,
            "expires_ms": key.expires_ms,
            "held_bytes": holding.memory_bytes,
            "deployments": len(holding.deployments),
            "jobs": len(holding.jobs),
            "streams": door.streams.count(key.holder),
            "last_used_ms": door.registrar.last_used_ms(key.holder),
            "work": self._work(key),
            "revoked_ms": None if ending is None else ending.at_ms,
            "revoked_by": None if ending is None else ending.by,
            "work_ended_ms": None if ending is None else ending.work_ended_ms,
            "kept": door.registrar.ends.is_kept(key.holder),
        }

    def _state(self, key: Key, now: int) -> Literal["open", "revoked", "expired"]:
        if self._door.house.store.ring.ending_of(key.holder) is not None:
            return "revoked"
        return "open" if key.is_open(now) else "expired"

    def _same_name(self, name: str | None, user_code: str) -> dict[str, list[str]]:
        """What a revoke of a sign-in's name takes back besides that one: open keys, and approved codes."""
        if name is None:
            return {"keys": [], "codes": []}
        registrar, now = self._door.registrar, self._door.house.clock.now_ms()
        named = self._door.house.store.ring.named(name)
        others = (each for each in registrar.waiting() if each.name == name and each.state == "approved")
        return {
            "keys": [key.holder for key in named if self._state(key, now) == "open"],
            "codes": [each.user_code for each in others if each.user_code != user_code],
        }

    def _matters(self, key: Key, now: int) -> bool:
        """Whether a key opens something, may do so after a restart, or still runs anything."""
        return (
            key.is_open(now) or not self._door.registrar.ends.is_kept(key.holder) or self._work(key) != "none"
        )

    def _work(self, key: Key) -> Literal["none", "running", "ending"]:
        """What a key holds, or what is still being ended of it.

        It follows from what runs: that all has ended is written down a moment after it has.
        """
        store = self._door.house.store
        holding, unfinished = store.world.holding(key.holder), store.world.unfinished.values()
        is_held = bool(holding.deployments or holding.jobs)
        ending = store.ring.ending_of(key.holder)
        if ending is not None and ending.ends_work and ending.work_ended_ms is None:
            is_pulling = any(a.holder == key.holder and isinstance(a.body, PullImage) for a in unfinished)
            return "ending" if is_held or is_pulling else "none"
        return "running" if is_held else "none"

    async def _wait_for_end(self, holders: list[str]) -> list[str]:
        store = self._door.house.store

        def running() -> list[str]:
            held = [store.world.holding(holder) for holder in holders]
            return [workload for each in held for workload in sorted(each.deployments | each.jobs)]

        with trio.move_on_after(STOP_WAIT_SECONDS):
            while running():
                await store.events.wait_for_news(store.events.end)
        return running()
