"""Which folders the commands look into: the same settings as the peer's, and only those.

A command that looks at a peer must not fail over a setting that only serving needs, so it reads the peer's
settings from an environment with nothing else in it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from peer.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path


def data_folder() -> Path:
    """The data folder, absolute; it need not be there.

    Raises:
        SettingsError: ``BEST_PEER_DATA`` is no path.
    """
    return _settings("HOME", "BEST_PEER_DATA").data


def model_folder() -> Path:
    """The folder of the peer's own models; the default one need not be there.

    Raises:
        SettingsError: a setting is no path, or ``BEST_PEER_MODELS`` names no folder.
    """
    return _settings("HOME", "BEST_PEER_DATA", "BEST_PEER_MODELS").models


def _settings(*names: str) -> Settings:
    return Settings.read({name: os.environ[name] for name in names if name in os.environ})
