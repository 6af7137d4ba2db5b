"""One peer's containers on an engine: looked at, made, started, ended, removed."""

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

import attrs
import trio

from adapters.runtime.docker.client import DockerClient, Parameters
from adapters.runtime.docker.ends import moment
from adapters.runtime.docker.faults import BadAnswer, EngineError, EngineGone
from adapters.runtime.docker.labels import INSTANCE, container_name, workload_of
from adapters.runtime.docker.leftovers import end_leftovers
from adapters.runtime.docker.lines import JsonLines

REMOVAL_SECONDS: Final = 30.0
"""How long an engine may take to free what a container held."""
LOOK_SECONDS: Final = 0.1
MAX_LIST: Final = 64 * 1024 * 1024
"""Two hundred containers of images that say all they may of themselves."""
PING_SECONDS: Final = 5.0
EVENTS_SECONDS: Final = 5.0
LATE_SECONDS: Final = 1.0
"""How long an engine is listened to for why the kernel ended a container: under load that is told after the
container's end, by a tenth of a second."""
MAX_EVENT: Final = 4 * 1024 * 1024
EVENTS_KEPT: Final = 256
"""How many events an engine remembers; none of them from before it was started itself."""

logger = logging.getLogger("best_peer.runtime")


@attrs.frozen
class Found:
    """A container of this peer's, as it was when it was looked at.

    Args:
        id: the engine's own.
        workload: whose program it is.
        state: `State`.
        labels: ours, and the image's.
        environment: `Env`, with the secret.
        ports: `NetworkSettings.Ports`; empty while it does not run.
        volumes: where folders of the engine's disk are mounted in it.
        stop_signal: what it wants to be asked to end by.
    """

    id: str
    workload: str
    state: Mapping[str, Any]
    labels: Mapping[str, str]
    environment: tuple[str, ...] = attrs.field(repr=False)
    ports: Mapping[str, Any]
    volumes: tuple[str, ...]
    stop_signal: str

    @property
    def is_running(self) -> bool:
        """Whether it runs; one that was paused does."""
        return self.state.get("Running") is True

    @property
    def is_fresh(self) -> bool:
        """Whether it was never started, or could not be."""
        return self.state.get("Status") == "created"

    @property
    def started(self) -> datetime | None:
        """When it was started."""
        return moment(self.state.get("StartedAt"))

    @property
    def ended(self) -> datetime | None:
        """When it ended."""
        return moment(self.state.get("FinishedAt"))

    @property
    def why_not_started(self) -> str:
        """What the engine said when it could not be started; empty when it was not tried."""
        return str(self.state.get("Error") or "")


@attrs.frozen
class Containers:
    """The containers of one peer.

    Every method raises `EngineGone` when the engine does not answer, and `EngineError` when it answers with
    an error that is not named there.
    """

    client: DockerClient
    instance: str

    def name(self, workload: str) -> str:
        """The name of a workload's container."""
        return container_name(self.instance, workload)

    async def look(self, workload: str) -> Found | None:
        """A workload's container, None when there is none, or one under its name that is not this peer's."""
        raw = await self.client.call("GET", f"/containers/{self.name(workload)}/json", ok=(404,))
        return None if raw is None else self._found(raw)

    async def is_name_foreign(self, workload: str) -> bool:
        """Whether a container that is not this peer's bears the workload's name."""
        raw = await self.client.call("GET", f"/containers/{self.name(workload)}/json", ok=(404,))
        return raw is not None and self._found(raw) is None

    async def listed(self) -> dict[str, str]:
        """The state (`running`, `created`, `exited`, ...) of every workload that has a container."""
        return {name: str(row.get("State")) for name, row in (await self._rows()).items()}

    async def running(self) -> dict[str, str]:
        """The id of every container that runs, by its workload."""
        rows = await self._rows()
        return {name: str(row.get("Id")) for name, row in rows.items() if row.get("State") == "running"}

    async def _rows(self) -> dict[str, Mapping[str, Any]]:
        params: Parameters = {"all": 1, "filters": json.dumps({"label": [f"{INSTANCE}={self.instance}"]})}
        rows = await self.client.call("GET", "/containers/json", params=params, most_bytes=MAX_LIST)
        found: dict[str, Mapping[str, Any]] = {}
        for row in rows or ():
            for name in row.get("Names") or ():
                workload = workload_of(row.get("Labels") or {}, name, self.instance)
                if workload is not None:
                    found[workload] = row
        return found

    async def create(self, workload: str, body: Mapping[str, Any]) -> str:
        """Make a container under the workload's name; its id. Dropped, it may be made all the same.

        Raises:
            EngineError: status 404 for an image that is not held, 409 for a name that is taken, and more.
        """
        answer = await self.client.call(
            "POST", "/containers/create", params={"name": self.name(workload)}, json=body
        )
        identity = answer.get("Id") if isinstance(answer, dict) else None
        if not isinstance(identity, str):
            raise BadAnswer("the container engine made a container and did not say which")
        for warning in answer.get("Warnings") or ():
            logger.debug("the container engine on %s: %s", workload, warning)
        return identity

    async def start(self, identity: str) -> None:
        """Start a container; one that runs already is left."""
        await self.client.call("POST", f"/containers/{identity}/start", ok=(304,))

    async def signal(self, identity: str, signal: str) -> None:
        """Send a signal to its first process, which passes it on; nothing where it does not run."""
        params = {"signal": signal}
        await self.client.call(
            "POST", f"/containers/{identity}/kill", params=params, ok=(404, 409), again=True
        )

    async def remove(self, identity: str, *, even_if_running: bool = False) -> None:
        """Remove a container and its volumes; return when it is gone.

        Raises:
            EngineError: status 409 for one that runs, and 500 for what its disk does not let go of.
        """
        params = {"v": 1, "force": int(even_if_running)}
        with trio.move_on_after(REMOVAL_SECONDS):
            while True:
                try:
                    await self.client.call(
                        "DELETE", f"/containers/{identity}", params=params, ok=(404,), again=True
                    )
                except EngineError as error:
                    if error.status != 409 or "already in progress" not in error.message:
                        raise
                    await trio.sleep(LOOK_SECONDS)
                else:
                    return
        raise EngineError(500, "its removal does not come to an end")

    async def end_leftovers(self, identity: str) -> None:
        """End what runs on in a container that was never started by the engine's account, and is removed."""
        if self.client.endpoint.socket is None:
            return
        kept = await trio.to_thread.run_sync(end_leftovers, identity)
        if kept:
            logger.error(
                "the container engine was killed while it started %s, and knows nothing any more of what "
                "runs in it: end that (sudo kill -9 %s)",
                identity[:12],
                " ".join(map(str, sorted(kept))),
            )

    async def until_ended(self, identity: str) -> None:
        """Wait until a container does not run; returns at once when there is none."""
        params = {"condition": "not-running"}
        try:
            async with self.client.stream("POST", f"/containers/{identity}/wait", params=params) as pieces:
                async for _ in pieces:
                    pass
        except EngineError as error:
            if error.status != 404:
                raise

    async def processes(self, identity: str) -> frozenset[int]:
        """Its processes, as the machine numbers them."""
        params = {"ps_args": "-eo pid"}
        answer = await self.client.call("GET", f"/containers/{identity}/top", params=params, ok=(404, 409))
        if answer is None:
            return frozenset()
        try:
            column = answer["Titles"].index("PID")
            return frozenset(int(row[column]) for row in answer["Processes"] or ())
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise BadAnswer(f"the container engine's list of processes cannot be read: {error}") from error

    async def is_engine_there(self) -> bool:
        """Whether the engine takes a call now: one that goes down takes none from its very beginning."""
        with trio.move_on_after(PING_SECONDS), suppress(EngineGone):
            async with self.client.stream("GET", "/_ping"):
                return True
        return False

    async def was_engine_restarted_since(self, found: Found) -> bool:
        """Whether the engine was started anew after it started this container; no, where that is not known.

        An engine remembers what it did since its own start, and forgets the oldest of it.
        """
        now = datetime.now(UTC)
        if found.started is None or found.ended is None or found.ended > now:
            # Its clock is not ours: what it did until now is not to be told from what it did not.
            return False
        oldest = now.timestamp()
        count = 0
        params: Parameters = {"since": 0, "until": f"{oldest:.6f}"}
        # Events of images carry their labels, and whoever pulled one chose which.
        with trio.move_on_after(EVENTS_SECONDS), suppress(BadAnswer):
            async with self.client.stream("GET", "/events", params=params) as pieces:
                async for event in JsonLines(pieces, most=MAX_EVENT):
                    if event.get("Action") == "start" and (event.get("Actor") or {}).get("ID") == found.id:
                        return False
                    count += 1
                    oldest = min(oldest, float(event.get("timeNano") or 0) / 1e9)
            return count < EVENTS_KEPT or oldest < found.started.timestamp()
        return False

    async def ran_out_of_memory(self, found: Found) -> bool:
        """Whether the engine tells, of a container that has ended, that it ran out of memory.

        It does in its events, once it has heard so itself; its mark on the container is set only where that
        was before the end.
        """
        params: Parameters = {"since": 0, "filters": json.dumps({"container": [found.id], "event": ["oom"]})}
        with trio.move_on_after(LATE_SECONDS), suppress(BadAnswer, EngineError):
            async with self.client.stream("GET", "/events", params=params) as pieces:
                async for event in JsonLines(pieces, most=MAX_EVENT):
                    if event.get("Action") == "oom" and (event.get("Actor") or {}).get("ID") == found.id:
                        return True
        return False

    def _found(self, raw: Mapping[str, Any]) -> Found | None:
        config = raw.get("Config") or {}
        labels = config.get("Labels") or {}
        workload = workload_of(labels, str(raw.get("Name")), self.instance)
        if workload is None:
            return None
        return Found(
            id=str(raw.get("Id")),
            workload=workload,
            state=raw.get("State") or {},
            labels=labels,
            environment=tuple(config.get("Env") or ()),
            ports=(raw.get("NetworkSettings") or {}).get("Ports") or {},
            volumes=tuple(
                str(mount.get("Destination"))
                for mount in raw.get("Mounts") or ()
                if mount.get("Type") == "volume"
            ),
            stop_signal=str(config.get("StopSignal") or "SIGTERM"),
        )
