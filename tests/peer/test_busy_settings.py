"""What makes a card busy is set, checked and handed on (F28)."""

from pathlib import Path

import pytest

from actors.rules.busy import Thresholds
from peer.compose import _thresholds
from peer.lifecycle import _busy_words
from peer.setting import SettingsError
from peer.settings import Settings


def read(folder: Path, **more: str) -> Settings:
    return Settings.read({"HOME": str(folder), **{f"BEST_PEER_{name}": text for name, text in more.items()}})


@pytest.mark.parametrize(
    "name", ["BUSY_MEMORY", "BUSY_UTILISATION", "BUSY_AFTER", "FREE_AFTER", "BUSY_EVERY"]
)
def test_the_others_are_checked_where_it_is_off_as_well(tmp_path: Path, name: str) -> None:
    """Easily missed 8."""
    with pytest.raises(SettingsError) as wrong:
        read(tmp_path, BUSY="off", **{name: "nonsense"})
    (problem,) = wrong.value.problems
    assert str(problem).startswith(f"BEST_PEER_{name}=nonsense")


def test_what_is_set_is_what_cards_are_judged_by(tmp_path: Path) -> None:
    settings = read(
        tmp_path, BUSY_MEMORY="3G", BUSY_UTILISATION="55", BUSY_AFTER="10", FREE_AFTER="1h", BUSY_EVERY="20"
    )
    assert _thresholds(settings) == Thresholds(3 << 30, 0.55, 10, 3600, 20)
    assert _thresholds(read(tmp_path)) == Thresholds(2 << 30, 0.3, 30, 300, 5)
    assert _thresholds(read(tmp_path, BUSY="off")) is None


def test_the_start_up_line_says_them_where_cards_are_read(tmp_path: Path) -> None:
    assert _busy_words(read(tmp_path)) == (
        "; a card is busy once other programs have held more than 2 GiB or used more than 30% of it "
        "for 30 s, and free 5 min after"
    )
    assert _busy_words(read(tmp_path, BUSY="off")) == (
        "; a card takes work whoever uses it (BEST_PEER_BUSY=off)"
    )
    assert _busy_words(read(tmp_path, GPU="none")) == ""
