"""The owner's routes, for the command line: approve, deny, revoke, look (F12 to F14).

The admin token is checked before anything else: without it an approval learns neither whether a code waits
nor which scopes there are.
"""

from typing import Annotated, Any, Literal, TypeVar, cast

import attrs
import msgspec
import orjson
import trio
from quart import Request, Response

from actors.log.journal import JournalUnavailable
from actors.log.linefile import NoRoom
from actors.reports import Machine, hardware_state, workloads
from actors.revoker import wake_revoker
from actors.rules.grants import scopes_when_unsaid
from actors.rules.refusal import Refusal
from actors.state.keys import Grant, Key, Scope
from peer.door.context import Door, bearer, body_of
from peer.door.problems import JSON

STOP_WAIT_SECONDS = 12.0
"""How long a revoke waits for the work to end before it names what has not."""


_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


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


_Body = TypeVar("_Body", ApproveRequest, DenyRequest, RevokeRequest)


class Admin:
    """The owner's side of one door."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._machine = Machine(door.house)

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

    async def pending(self, request: Request) -> Response:
        """GET: whom an approval would let in."""
        waiting = self._door.registrar.look(request.args.get("user_code", "")[:64])
        return _json(attrs.asdict(waiting))

    async def approve(self, request: Request) -> Response:
        """POST: let an agent in."""
        asked = await _body(request, ApproveRequest)
        scopes = scopes_when_unsaid(asked.memory_bytes) if asked.scopes is None else asked.scopes
        grant = Grant(
            scopes=cast("tuple[Scope, ...]", tuple(dict.fromkeys(scopes))),  # check_grant looks at them
            memory_bytes=asked.memory_bytes,
            deployments=asked.deployments,
            jobs=asked.jobs,
            workspaces=asked.workspaces,
            expires_seconds=asked.expires_seconds,
            open_jobs=asked.open_jobs,
            accelerators_only=asked.accelerators_only,
        )
        try:
            approved = await self._door.registrar.approve(asked.user_code, grant)
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
        return _json(
            {
                "user_code": approved.user_code,
                "name": approved.name,
                "client_id": approved.client_id,
                "agent_label": approved.agent_label,
                "address": approved.address,
                "grant": attrs.asdict(approved.grant),
            }
        )

    async def deny(self, request: Request) -> Response:
        """POST: turn an agent away (R11)."""
        asked = await _body(request, DenyRequest)
        denied = self._door.registrar.deny(asked.user_code)
        return _json(
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
        asked = await _body(request, RevokeRequest)
        revoked = await self._door.registrar.revoke(asked.name, ends_work=not asked.keep_running)
        running: list[str] = []
        if not asked.keep_running:
            wake_revoker(self._door.house)
            keys = (*revoked.keys, *revoked.closed_before)
            running = await self._wait_for_end([key.holder for key in keys])
        return _json(
            {
                "revoked": [{"name": k.name, "holder": k.holder} for k in revoked.keys],
                "closed_before": [{"name": k.name, "holder": k.holder} for k in revoked.closed_before],
                "kept": revoked.kept,
                "still_running": running,
                "keep_running": asked.keep_running,
            }
        )

    async def status(self, request: Request) -> Response:  # noqa: ARG002 - one signature for all views
        """GET: devices, workloads and keys, for the owner."""
        door = self._door
        hardware = await hardware_state(self._machine, None, instance=door.instance, version=door.version)
        now = door.house.clock.now_ms()
        return _json(
            {
                **hardware,
                "endpoint": door.endpoint,
                "data": str(door.data),
                "workloads": workloads(door.house, None),
                "keys": [self._key(key, now) for key in door.house.store.ring.all()],
                "streams": len(door.streams),
            }
        )

    def _key(self, key: Key, now: int) -> dict[str, Any]:
        holding = self._door.house.store.world.holding(key.holder)
        state: Literal["open", "revoked", "expired"] = "open"
        if key.revoked_ms is not None:
            state = "revoked"
        elif not key.is_open(now):
            state = "expired"
        return {
            "name": key.name,
            "holder": key.holder,
            "state": state,
            "grant": attrs.asdict(key.grant),
            "agent_label": key.agent_label,
            "issued_ms": key.issued_ms,
            "expires_ms": key.expires_ms,
            "held_bytes": holding.memory_bytes,
            "deployments": len(holding.deployments),
            "jobs": len(holding.jobs),
        }

    async def _wait_for_end(self, holders: list[str]) -> list[str]:
        store = self._door.house.store

        def running() -> list[str]:
            held = [store.world.holding(holder) for holder in holders]
            return [workload for each in held for workload in sorted(each.deployments | each.jobs)]

        with trio.move_on_after(STOP_WAIT_SECONDS):
            while running():
                await store.events.wait_for_news(store.events.end)
        return running()


async def _body(request: Request, kind: type[_Body]) -> _Body:
    body = await body_of(request)
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:  # names fields and types, never values
        raise Refusal("SCHEMA_VALIDATION", f"the body is not as expected: {str(error)[:200]}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refusal("INVALID_JSON", "the body is not JSON; expected one JSON object") from error


def _json(answer: dict[str, Any]) -> Response:
    return Response(orjson.dumps(answer), 200, {"cache-control": "no-store"}, content_type=JSON)
