"""The data folder: where the peer keeps what outlives it, and what its own command line reads (F14, F33).

`DataFolder` is what a running peer holds: a folder of its own user, locked, with its id and admin token in
place. `DoorRecord` and `read_admin_token` are the other side: how ``best-peer approve`` finds that peer.
Everything here blocks; it runs before the peer serves and after it stopped.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import re
import secrets
import stat
from typing import TYPE_CHECKING, ClassVar, Final, Self

import attrs
import msgspec

from adapters.files import (
    OTHERS,
    PRIVATE_FILE,
    PRIVATE_FOLDER,
    NotPrivate,
    make_private_folder,
    read_private,
    sweep_unfinished,
    sync_folder,
    write_private,
)

if TYPE_CHECKING:
    from pathlib import Path

# What tells a token apart from a key, and what the log knows one by.
TOKEN_PREFIX: Final = "bpa_"  # noqa: S105
MAX_SMALL_FILE: Final = 64 * 1024
"""The largest token, id or door record read, in bytes."""

_TOKEN = re.compile(r"[A-Za-z0-9_-]{43,200}")
_INSTANCE = re.compile(r"p-[a-z0-9]{16,64}")
_CHOOSE: Final = "choose another folder with BEST_PEER_DATA"


NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""How a system says that a disk, or a user's part of it, is full."""


class FolderError(Exception):
    """Raised when the data folder cannot serve as one; the text is one line that says what to do."""

    code: ClassVar[str] = "FOLDER_UNUSABLE"

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.path = path


class FolderInUse(FolderError):
    """Raised when another peer runs on the folder."""

    code = "FOLDER_IN_USE"


class FolderNotOurs(FolderError):
    """Raised when the folder, or what must be private in it, belongs to another user."""

    code = "FOLDER_NOT_OURS"


class FolderUnusable(FolderError):
    """Raised when the folder is none, cannot be written, or holds what the peer cannot go on from."""


class NoDoor(FolderError):
    """Raised when no peer serves the folder: its door record is not there."""

    code = "NO_DOOR"


@attrs.frozen(kw_only=True)
class DoorRecord:
    """Where the running peer's door is; kept as ``door.json`` while it serves, for the command line."""

    endpoint: str
    """The base URL that consumers are told."""
    listen: tuple[str, ...]
    """The addresses actually bound, ``host:port`` or ``[v6]:port``."""
    certificate: str | None
    """The PEM file that clients pin; None where the door serves plain http."""
    pid: int
    version: str
    models: str | None = None
    """The folder its models lie in; None in the record of a version that did not say."""
    pins: tuple[str, ...] = ()
    """The door's own certificates as PEM, two while one takes the other's place."""

    @classmethod
    def read(cls, path: Path) -> DoorRecord:
        """Read ``door.json``; fields that this version does not know are left aside.

        Raises:
            NoDoor: it is not there.
            FolderNotOurs: it is another user's.
            FolderUnusable: it cannot be read or is no door record.
        """
        try:
            return msgspec.json.decode(_read(path), type=cls)
        except FileNotFoundError:
            raise NoDoor(
                path, f"no peer serves {path.parent}: start it with best-peer, or {_CHOOSE}"
            ) from None
        except msgspec.MsgspecError as error:
            raise FolderUnusable(path, f"{path} is no door record ({error}): restart the peer") from error

    def write(self, path: Path) -> None:
        """Put the record in place, durably. Raises OSError as `write_private`."""
        write_private(path, msgspec.json.format(msgspec.json.encode(self)) + b"\n")


@attrs.define(eq=False, kw_only=True)
class DataFolder:
    """A data folder that this process alone holds. Made by `open`; `close` lets another peer have it."""

    path: Path
    instance_id: str
    """This peer's own id, ``p-`` and twenty characters: made once, borne by everything it makes outside."""
    admin_token: str = attrs.field(repr=False)
    """What opens the owner's side of the door."""
    warnings: tuple[str, ...]
    """What `open` mended, one line each, for the log."""
    _lock: int | None = attrs.field(repr=False, alias="lock")

    @classmethod
    def open(cls, path: Path) -> DataFolder:
        """Take the folder, making it and what is missing in it; a stale door record is removed.

        Args:
            path: an absolute path.

        Raises:
            FolderInUse: another peer has it.
            FolderNotOurs: it, or a private file in it, is another user's.
            FolderUnusable: it is not a folder, cannot be written, or its instance file is damaged.
        """
        warnings: list[str] = []
        try:
            _take(path, warnings)
            lock = _lock(path)
            try:
                # Left by a peer that was killed: nobody serves there, and the port may be another's by now.
                # At once, since with the folder held the command line takes it for this peer's.
                (path / "door.json").unlink(missing_ok=True)
                for name in ("events", "tls", "workloads", "models"):
                    make_private_folder(path / name)
                for folder in (path, path / "tls"):
                    sweep_unfinished(folder)
                return cls(
                    path=path,
                    instance_id=_instance(path / "instance"),
                    admin_token=_admin_token(path / "admin-token", warnings),
                    warnings=tuple(warnings),
                    lock=lock,
                )
            except BaseException:
                os.close(lock)
                raise
        except OSError as error:
            reason = f"{error.filename or path}: {error.strerror or error}"
            mend = "free some room there" if error.errno in NO_ROOM else "mend that"
            raise FolderUnusable(path, f"cannot use {path} ({reason}): {mend}, or {_CHOOSE}") from error

    @property
    def events(self) -> Path:
        """The folder of the event log's day files (F4)."""
        return self.path / "events"

    @property
    def accepted(self) -> Path:
        """The record of accepted commands (F3)."""
        return self.path / "accepted.jsonl"

    @property
    def keys(self) -> Path:
        """The record of keys, as hashes (F13)."""
        return self.path / "keys.jsonl"

    @property
    def admin_token_file(self) -> Path:
        """Where the command line reads the admin token."""
        return self.path / "admin-token"

    @property
    def door(self) -> Path:
        """Where the door record is while the peer serves."""
        return self.path / "door.json"

    @property
    def tls(self) -> Path:
        """The folder of the certificate that the peer made itself (F34)."""
        return self.path / "tls"

    @property
    def workloads(self) -> Path:
        """The folder of what runtimes keep per workload."""
        return self.path / "workloads"

    @property
    def models(self) -> Path:
        """The folder of models, unless ``BEST_PEER_MODELS`` names another."""
        return self.path / "models"

    def close(self) -> None:
        """Remove the door record and let the folder go. Doing it twice is safe."""
        if self._lock is None:
            return
        lock, self._lock = self._lock, None
        try:
            self.door.unlink(missing_ok=True)
            sync_folder(self.path)
        finally:
            os.close(lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def read_admin_token(folder: Path) -> str:
    """The admin token of the peer over ``folder``, for the command line; takes no lock.

    Raises:
        NoDoor: no peer was ever started over the folder.
        FolderNotOurs: it is another user's.
        FolderUnusable: it cannot be read, is open to others, or is no token.
    """
    path = folder / "admin-token"
    try:
        token = _read(path).decode("ascii", "replace").strip()
    except FileNotFoundError:
        raise NoDoor(
            path, f"no peer was started over {folder}: start it with best-peer, or {_CHOOSE}"
        ) from None
    if not _TOKEN.fullmatch(token):
        raise FolderUnusable(path, f"{path} is damaged: restart the peer, which makes a new one")
    return token


def is_held(folder: Path) -> bool:
    """Whether a peer runs over ``folder``: its lock is held, which ends with its process however that ends.

    For the command line, which sends the admin token where ``door.json`` says: after a peer was killed that
    file stays, and whoever listens there by then must not be given the token.

    Raises:
        FolderUnusable: the lock cannot be looked at.
    """
    try:
        fd = os.open(folder / "lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        finally:
            os.close(fd)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    except PermissionError as error:
        owner = _owner(folder / "lock")
        raise FolderNotOurs(
            folder, f"only {owner} may look into {folder}: run this as {owner}, or {_CHOOSE}"
        ) from error
    except OSError as error:
        raise FolderUnusable(
            folder, f"cannot look into {folder} ({error.strerror or error}): mend that, or {_CHOOSE}"
        ) from error
    return False


def _read(path: Path) -> bytes:
    """A small private file, with what is wrong with it told as a person at the command line needs it."""
    try:
        return read_private(path, MAX_SMALL_FILE)
    except NotPrivate as error:
        if error.what == "owner":
            owner = _owner(path)
            raise FolderNotOurs(path, f"{path} belongs to {owner}: run this as {owner}") from error
        raise FolderUnusable(path, f"{error}: restart the peer, which makes a new one") from error
    except PermissionError as error:
        owner = _owner(path)
        raise FolderNotOurs(path, f"only {owner} may read {path}: run this as {owner}") from error
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(path) from None
    except OSError as error:
        raise FolderUnusable(path, f"cannot read {path}: {error.strerror}") from error


def _take(path: Path, warnings: list[str]) -> None:
    """Make the folder or see that it is this user's, and close it to others."""
    try:
        make_private_folder(path)
    except (FileExistsError, NotADirectoryError):
        raise FolderUnusable(path, f"{path} is not a folder, nor can one be made there: {_CHOOSE}") from None
    status = path.stat()
    if status.st_uid != os.geteuid():
        owner = _owner(path)
        raise FolderNotOurs(path, f"{path} belongs to {owner}: run the peer as {owner}, or {_CHOOSE}")
    if status.st_mode & OTHERS:
        path.chmod(stat.S_IMODE(status.st_mode) & PRIVATE_FOLDER)
        warnings.append(
            f"{path} was open to others (mode {stat.S_IMODE(status.st_mode):04o}) and was closed to them"
        )


def _lock(path: Path) -> int:
    """Take the folder's lock, which the system gives back when this process ends however it ends."""
    file = path / "lock"
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(file, flags, PRIVATE_FILE)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            written = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            pid = written if written.isdigit() else "unknown"
            raise FolderInUse(
                path, f"another peer (pid {pid}) runs on {path}: stop it first, or {_CHOOSE}"
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            raise FolderUnusable(
                path, f"{path} is on a file system that keeps no locks: {_CHOOSE}, on a local disk"
            ) from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _instance(path: Path) -> str:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_SMALL_FILE).decode("ascii", "replace").strip()
    except FileNotFoundError:
        made = f"p-{secrets.token_hex(10)}"
        write_private(path, f"{made}\n".encode())
        return made
    if not _INSTANCE.fullmatch(text):
        # A new id would orphan every container and process that bears the old one.
        raise FolderUnusable(
            path,
            f"{path} is damaged: restore it, or remove it once nothing that this peer started runs any more",
        )
    return text


def _admin_token(path: Path, warnings: list[str]) -> str:
    """The token that is there, or a new one where it is missing, damaged or may have been read by others.

    Nobody keeps a copy, the command line reads the file each time: a new one costs nothing, and is the only
    mend for one that was open to others.
    """
    try:
        token = read_private(path, MAX_SMALL_FILE).decode("ascii", "replace").strip()
    except FileNotFoundError:
        pass
    except NotPrivate as error:
        if error.what == "owner":
            owner = _owner(path)
            raise FolderNotOurs(path, f"{path} belongs to {owner}: remove it, or {_CHOOSE}") from error
        warnings.append(f"{error}: a new admin token was made")
    else:
        if _TOKEN.fullmatch(token):
            return token
        warnings.append(f"{path} was damaged: a new admin token was made")
    made = TOKEN_PREFIX + secrets.token_urlsafe(32)
    write_private(path, f"{made}\n".encode())
    return made


def _owner(path: Path) -> str:
    """The name of the user whose the path is, or of the folder that hides it."""
    for place in (path, *path.parents):
        try:
            uid = place.stat().st_uid
        except OSError:
            continue
        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            return f"user {uid}"
    return "its owner"
