"""Every setting of the peer, read from the environment in this one place (F33).

A setting is a field of one of the groups that `Settings` puts together: its metadata is its entry in the
table from which ``--help`` and ``docs/settings.md`` are made as well. To add one, add its field there; if it
must agree with others, say so in `peer.settings_checks`.
"""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from peer.addresses import Address, Endpoint
from peer.setting import MAX_VALUE, Problem, Setting, SettingsError, absolute, shown
from peer.settings_checks import conflicts, in_the_clear
from peer.settings_devices import DeviceSettings
from peer.settings_door import DoorSettings
from peer.settings_limits import LimitSettings
from peer.settings_names import RETIRED, retired, unknown
from peer.settings_programs import ProgramSettings

GROUPS: Final = (DoorSettings, DeviceSettings, ProgramSettings, LimitSettings)
"""In the order that people read them. They have no slots, since a class inherits those of one alone."""

DOCKER_VARIABLES: Final = ("DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "HOME")


@attrs.frozen(kw_only=True)
class Settings(DoorSettings, DeviceSettings, ProgramSettings, LimitSettings):
    """What a person chose for this peer, checked. Paths are absolute, durations seconds, sizes bytes."""

    docker: Mapping[str, str] = attrs.field(factory=dict)
    """The variables by which docker itself is told where the container engine is."""
    unknown: tuple[str, ...] = ()
    """A line for each ``BEST_PEER_*`` variable that is no setting of this release."""

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Settings:
        """Read and check every setting; the one place that looks at the environment.

        Args:
            environ: the environment, ``os.environ`` for a peer.

        Raises:
            SettingsError: any is wrong, with all that are wrong in it.
        """
        problems = [retired(name, environ[name]) for name in RETIRED if name in environ]
        given = {setting.name for setting in settings_table() if setting.name in environ}
        failed: set[str] = set()
        values: dict[str, Any] = {}
        home = _home(environ)
        for field, setting in _fields().items():
            try:
                values[field] = _value(setting, environ.get(setting.name), home)
            except ValueError as error:
                failed.add(setting.name)
                problems.append(_refused(setting, environ.get(setting.name), error))
                values[field] = None if setting.default is None else setting.parse(setting.default)
        _complete(values, environ.get("PATH", os.defpath))
        known = [setting.name for setting in settings_table()]
        docker = {name: environ[name] for name in DOCKER_VARIABLES if name in environ}
        settings = cls(**values, docker=docker, unknown=tuple(unknown(environ, known)))
        # What rests on a value that was refused itself would only be noise.
        problems += [
            each for each in conflicts(settings, given) if not failed & {each.variable, *each.involves}
        ]
        if problems:
            raise SettingsError(tuple(problems))
        return settings

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the log is told at start: unknown variables, and http off loopback."""
        if not in_the_clear(self):
            return self.unknown
        return (
            *self.unknown,
            f"{self.endpoint} is served in the clear: BEST_PEER_CLEARTEXT=vpn says a VPN encrypts every hop",
        )


def settings_table() -> tuple[Setting, ...]:
    """Every setting of this release, in the order that people read them."""
    return tuple(_fields().values())


def _fields() -> dict[str, Setting]:
    return {field.name: field.metadata["setting"] for group in GROUPS for field in attrs.fields(group)}


def _home(environ: Mapping[str, str]) -> Path | None:
    """The home folder, if there is one: a container may run as a user that nobody named."""
    if environ.get("HOME"):
        return Path(environ["HOME"])
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return None


def _value(setting: Setting, given: str | None, home: Path | None) -> object:
    text = setting.default if given is None else given.strip()
    if text is None:
        return None
    if not text:
        raise ValueError(f"it is empty, expected {setting.takes}")
    if len(text) > MAX_VALUE:
        raise ValueError(f"expected {setting.takes}, in at most {MAX_VALUE} characters")
    value = setting.parse(text)
    return absolute(value, home) if isinstance(value, Path) else value


def _refused(setting: Setting, given: str | None, error: ValueError) -> Problem:
    value = None if given is None else shown(given, secret=setting.secret)
    return Problem(variable=setting.name, shown=value, expected=str(error), fix=setting.unset_it)


def _complete(values: dict[str, Any], search: str) -> None:
    """Fill in what follows from other values, and the program found on ``search``."""
    listen: Address = values["listen"]
    values["endpoint"] = values["endpoint"] or Endpoint("http", listen.host, listen.port)
    values["models"] = values["models"] or values["data"] / "models"
    if values["llama_server"] is None and (found := shutil.which("llama-server", path=search)):
        values["llama_server"] = Path(found).absolute()
