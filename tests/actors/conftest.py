"""What the tests of actors share."""

import pytest

from tests.support.houses import Disk, disk_under


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """The disk under every house of a test, to fill or to hold up."""
    return disk_under(monkeypatch)


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried again every few seconds is tried again at once: no test is about how long that takes."""
    monkeypatch.setattr("actors.ending.RETRY_SECONDS", 0.005)
    monkeypatch.setattr("actors.revoker.RETRY_SECONDS", 0.005)
    monkeypatch.setattr("actors.tree.ROOM_RETRY_SECONDS", 0.005)
    monkeypatch.setattr("actors.log.eventlog.ROOM_RETRY_SECONDS", 0.005)
    monkeypatch.setattr("actors.loading.LAST_WORDS_SECONDS", 0.02)
    monkeypatch.setattr("actors.patience.FIRST_WAIT_SECONDS", 0.002)
    monkeypatch.setattr("actors.patience.LONGEST_WAIT_SECONDS", 0.005)
    monkeypatch.setattr("actors.image.PACE_SECONDS", 0.0)
