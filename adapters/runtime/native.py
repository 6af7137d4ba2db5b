"""An engine installed on this machine: its owner's, so that nothing of it is started or stopped (F21).

A workload here is a model that the Ollama of this machine serves for a deployment: started when that Ollama
answers, ended when its model is let go, when the Ollama has been gone for a while, or when its owner removed
the model. An Ollama that is started again meanwhile is fine: the next prompt loads the model.
"""

import json
import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
import trio

from adapters.engine.json_http import JsonHttp
from adapters.engine.ollama_api import OllamaApi
from adapters.engine.port import EngineUnreachable
from adapters.files import write_private
from adapters.models.faults import BadName
from adapters.models.ollama_name import parse_name
from adapters.runtime.port import (
    RECORDS,
    WORKLOAD_ID,
    Exit,
    Handle,
    Isolation,
    NotEnded,
    RuntimeFault,
    StartFailed,
    WorkloadSpec,
    record_path,
)

logger = logging.getLogger("best_peer.runtime")

T = TypeVar("T")

RECORD: Final = "native.json"
MAX_RECORD: Final = 256 * 1024
LOOK_SECONDS: Final = 5.0
GONE_SECONDS: Final = 15.0
"""Longer than an Ollama takes to be started again; with the looks around it the end is known within 30 s."""
MISSED_LOOKS: Final = 2
"""How often in a row its model has to be missing: lists are made anew while a model is pulled over."""
UNLOAD_SECONDS: Final = 10.0


@attrs.frozen
class _Record:
    """One deployment on the installed Ollama.

    `was_there` tells a model that was removed from one that has still to be pulled; `ended` says why it
    ended, empty for one that was stopped.
    """

    workload: str
    holder: str
    instance: str
    model: str
    detail: Mapping[str, str]
    was_there: bool = False
    ended: str | None = None


@attrs.define(eq=False)
class NativeRuntime:
    """Runtime of models on the Ollama of this machine.

    Args:
        data: the peer's data folder.
        instance: the peer's own id.
        http: asks; the composition closes it.
        base_url: where it listens, `http://BEST_PEER_ENGINE_HOST:11434`.
        look_seconds: how often it is looked at while a workload is waited for.
        gone_seconds: how long it may be silent.
    """

    data: Path
    instance: str
    http: JsonHttp
    base_url: str
    look_seconds: float = LOOK_SECONDS
    gone_seconds: float = GONE_SECONDS
    _api: OllamaApi = attrs.field(init=False)
    _started: set[str] = attrs.field(factory=set, init=False)
    _known: dict[str, _Record] = attrs.field(factory=dict, init=False)
    _changed: dict[str, trio.Event] = attrs.field(factory=dict, init=False)
    _turn: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    """Who starts, stops or removes a workload; also so that two never let go of one model by turns."""

    def __attrs_post_init__(self) -> None:
        """Ask through what the composition gave."""
        self._api = OllamaApi(self.http)

    @property
    def name(self) -> str:
        """The name `BEST_PEER_RUNTIME` chooses it by."""
        return "native"

    @property
    def isolation(self) -> Isolation:
        """Nothing but its user's rights stands between that engine and the host."""
        return "process"

    @property
    def has_jobs(self) -> bool:
        """A job needs a container."""
        return False

    @property
    def images(self) -> None:
        """What is installed needs none."""
        return None

    async def start(self, spec: WorkloadSpec) -> Handle:
        """Look whether the installed Ollama answers, and keep that this workload is on it."""
        async with self._turn:
            known = await self._living(spec.workload)
            if known is None:
                if not await self._api.answers(self.base_url):
                    raise StartFailed(
                        "the Ollama that is installed on this machine does not answer",
                        fix="the owner of this machine starts it (systemctl start ollama), or sets "
                        "BEST_PEER_ENGINE_HOST to where it listens, or BEST_PEER_RUNTIME to another runtime",
                        code="RUNTIME_UNAVAILABLE",
                    )
                known = _Record(
                    spec.workload, spec.holder, self.instance, spec.detail.get("model", ""), dict(spec.detail)
                )
                try:
                    await self._write(known)
                except OSError as error:
                    raise StartFailed(
                        f"the record of {spec.workload} could not be written: {error.strerror or error}",
                        fix="the owner of this machine frees room where the peer's data folder lies",
                        code="NO_ROOM",
                    ) from error
                self._started.add(spec.workload)
            return self._handle(known)

    async def find(self, workload: str) -> Handle | None:
        """The workload as it was started, whether the Ollama answers now or not."""
        known = await self._living(workload)
        return None if known is None else self._handle(known)

    async def wait(self, workload: str) -> Exit:
        """Wait until its model was let go or removed, or the Ollama is gone."""
        heard, missed = trio.current_time(), 0
        while True:
            record = await self._read(workload)
            if record is None:
                return Exit(None)
            if record.ended is not None:
                return Exit(None, (record.ended,) if record.ended else ())
            changed = self._changed.setdefault(workload, trio.Event())
            with trio.move_on_after(self.look_seconds):
                await changed.wait()
                continue
            if await self._api.answers(self.base_url):
                heard = trio.current_time()
            elif trio.current_time() - heard >= self.gone_seconds:
                await self._end(
                    workload,
                    f"the Ollama that is installed on this machine did not answer for "
                    f"{self.gone_seconds:.0f} s",
                )
                continue
            is_there = await self._is_there(record)
            missed = missed + 1 if is_there is False and record.was_there else 0
            if is_there and not record.was_there:
                await self._note_there(workload)
            if missed >= MISSED_LOOKS:
                await self._end(workload, "its model was removed from the Ollama that is installed")

    async def stop(self, workload: str, *, grace_seconds: float) -> None:  # noqa: ARG002
        """Have the Ollama let the model go, unless another deployment of this peer is on it."""
        async with self._turn:
            record = await self._living(workload)
            if record is None:
                return
            others = [other for other in await self._all() if other.workload != workload]
            if not any(_is_same_model(other.model, record.model) for other in others if other.ended is None):
                await self._unload(record)
            await self._replace(workload, ended="")

    async def tail(self, workload: str) -> tuple[str, ...]:
        """Why it ended, where it ended by itself; what the Ollama writes is its owner's."""
        record = await self._read(workload)
        return (record.ended,) if record is not None and record.ended else ()

    async def discard(self, workload: str) -> None:
        """Remove the record of a workload that has ended."""
        folder = record_path(self.data, workload)
        async with self._turn:
            if await self._living(workload) is not None:
                raise RuntimeFault(f"{workload} is still served; stop it before its record is removed")
            try:
                await _run(lambda: shutil.rmtree(folder) if folder.exists() else None)
            except OSError as error:
                raise RuntimeFault(f"{folder} could not be removed: {error.strerror or error}") from error
            self._started.discard(workload)
            self._known.pop(workload, None)
            self._tell(workload)

    async def running(self) -> tuple[str, ...]:
        """The ids of all that are served now."""
        return tuple(record.workload for record in await self._all() if record.ended is None)

    async def all_processes(
        self,
        among: frozenset[int] | None = None,  # noqa: ARG002
    ) -> Mapping[str, frozenset[int]]:
        """None: see `processes`."""
        await trio.lowlevel.checkpoint()
        return {}

    async def processes(self, workload: str) -> frozenset[int]:  # noqa: ARG002
        """None that can be told from those of another deployment: one server has them all."""
        await trio.lowlevel.checkpoint()
        return frozenset()

    async def kept(self) -> tuple[str, ...]:
        """The ids of all that have a record, or a folder that was meant for one."""
        return await _run(self._folders)

    async def _is_there(self, record: _Record) -> bool | None:
        """Whether the Ollama has the model; None when that is not to be known now."""
        try:
            name = parse_name(record.model)
            with trio.move_on_after(self.look_seconds):
                return await self._api.entry(self.base_url, name) is not None
        except (BadName, EngineUnreachable):
            return None
        return None

    async def _unload(self, record: _Record) -> None:
        """Let the model go. One that its owner is being answered by goes when that is done.

        Raises:
            NotEnded: the Ollama is there and does not answer.
        """
        try:
            with trio.fail_after(UNLOAD_SECONDS):
                reply = await self._api.unload(self.base_url, record.model)
        except EngineUnreachable as gone:
            # What is not there holds nothing loaded.
            logger.info("%s is not let go of: %s", record.model, gone)
            return
        except trio.TooSlowError as error:
            raise NotEnded(
                f"the Ollama that is installed did not let go of {record.model} within {UNLOAD_SECONDS:.0f} s"
            ) from error
        if reply.status not in (200, 404):
            raise NotEnded(f"the Ollama that is installed did not let go of {record.model}: {reply.words}")

    async def _note_there(self, workload: str) -> None:
        async with self._turn:
            await self._replace(workload, was_there=True)

    async def _end(self, workload: str, why: str) -> None:
        logger.info("%s has ended: %s", workload, why)
        async with self._turn:
            if await self._living(workload) is not None:
                await self._replace(workload, ended=why)

    async def _replace(self, workload: str, **changes: Any) -> None:
        record = await self._living(workload)
        if record is None:
            return
        self._known[workload] = changed = attrs.evolve(record, **changes)
        try:
            await self._write(changed)
        except OSError as error:
            logger.warning("what became of %s could not be written down: %s", workload, error)
        if "ended" in changes:
            self._tell(workload)

    def _tell(self, workload: str) -> None:
        changed = self._changed.pop(workload, None)
        if changed is not None:
            changed.set()

    async def _living(self, workload: str) -> _Record | None:
        record = await self._read(workload)
        return None if record is None or record.ended is not None else record

    async def _all(self) -> list[_Record]:
        found = [await self._read(workload) for workload in await self.kept()]
        return [record for record in found if record is not None]

    async def _read(self, workload: str) -> _Record | None:
        """The record of a workload of this peer; None where there is none that can be read."""
        if workload in self._known:
            await trio.lowlevel.checkpoint()
            return self._known[workload]
        path = record_path(self.data, workload) / RECORD

        def read() -> _Record | None:
            try:
                with path.open("rb") as file:
                    return _record(json.loads(file.read(MAX_RECORD)))
            except (OSError, ValueError, KeyError, TypeError):
                return None

        record = await _run(read)
        if record is None or record.instance != self.instance:
            return None
        # Another task may have read it, and gone on from there, meanwhile.
        return self._known.setdefault(workload, record)

    async def _write(self, record: _Record) -> None:
        folder = record_path(self.data, record.workload)

        def write() -> None:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(folder / RECORD, json.dumps(attrs.asdict(record), indent=1).encode())

        await _run(write)
        self._known[record.workload] = record

    def _folders(self) -> tuple[str, ...]:
        records = self.data / RECORDS
        names = [path.name for path in records.iterdir()] if records.is_dir() else []
        return tuple(
            sorted(
                name
                for name in names
                if WORKLOAD_ID.fullmatch(name)
                and ((records / name / RECORD).exists() or not any((records / name).iterdir()))
            )
        )

    def _handle(self, record: _Record) -> Handle:
        return Handle(
            workload=record.workload,
            holder=record.holder,
            base_url=self.base_url,
            adopted=record.workload not in self._started,
            detail=record.detail,
        )


def _record(raw: dict[str, Any]) -> _Record:
    return _Record(
        workload=str(raw["workload"]),
        holder=str(raw["holder"]),
        instance=str(raw["instance"]),
        model=str(raw["model"]),
        detail={str(key): str(value) for key, value in raw["detail"].items()},
        was_there=bool(raw["was_there"]),
        ended=None if raw["ended"] is None else str(raw["ended"]),
    )


def _is_same_model(one: str, other: str) -> bool:
    try:
        return parse_name(one).is_called(other)
    except BadName:
        return one == other


async def _run(work: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(work)
