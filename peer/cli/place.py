"""Which folders the commands look into: the same settings as the peer's, and only those.

A command that looks at a peer must not fail over a setting that only serving needs, so it reads the peer's
settings from an environment with nothing else in it. Where the models lie, the running peer itself says.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from peer.settings import Settings

MODELS: Final = "BEST_PEER_MODELS"


def data_folder() -> Path:
    """The data folder, absolute; it need not be there.

    Raises:
        SettingsError: ``BEST_PEER_DATA`` is no path.
    """
    return _settings("HOME", "BEST_PEER_DATA").data


def model_folder() -> Path:
    """The folder of the peer's own models; the default one need not be there.

    Without ``BEST_PEER_MODELS`` it is the one that the peer over the data folder serves from, where one runs.

    Raises:
        SettingsError: a setting is no path, or ``BEST_PEER_MODELS`` names no folder.
        FolderError: the data folder is another user's.
    """
    settings = _settings("HOME", "BEST_PEER_DATA", MODELS)
    return settings.models if os.environ.get(MODELS) else _served_from(settings.data) or settings.models


def _served_from(data: Path) -> Path | None:
    """Where the running peer's models lie; None where none runs, or it does not say."""
    from peer.folder import DoorRecord, NoDoor, is_held

    if not is_held(data):
        return None
    try:
        models = DoorRecord.read(data / "door.json").models
    except NoDoor:
        return None  # it starts just now
    return None if models is None else Path(models)


def _settings(*names: str) -> Settings:
    return Settings.read({name: os.environ[name] for name in names if name in os.environ})
