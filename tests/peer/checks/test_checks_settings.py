"""What is said of the settings, and how a file of them is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from peer.checks.settings import read, read_file

HOME = {"HOME": "/home/ann", "PATH": "/usr/bin:/bin"}


def test_settings_that_are_valid_are_named_and_not_shown() -> None:
    settings, (line,) = read({**HOME, "BEST_PEER_DATA": "/var/lib/ann-s-own", "BEST_PEER_RUNTIME": "fake"})
    assert line.state == "ok"
    assert "BEST_PEER_DATA, BEST_PEER_RUNTIME" in line.what
    assert "ann-s-own" not in line.what
    assert settings.data == Path("/var/lib/ann-s-own")


def test_each_wrong_setting_is_a_problem_and_the_rest_still_counts() -> None:
    settings, lines = read(
        {**HOME, "BEST_PEER_LISTEN": "nonsense", "BEST_PEER_PULL": "never", "BEST_PEER_RUNTIME": "process"}
    )
    assert [line.state for line in lines] == ["problem", "problem"]
    assert "BEST_PEER_LISTEN=nonsense is refused" in lines[0].what
    assert lines[0].remedy is not None
    assert "unset it" in lines[0].remedy
    assert settings.runtime == "process"


def test_a_conflict_that_stands_behind_another_is_told_too() -> None:
    _, lines = read({**HOME, "BEST_PEER_PULL": "never", "BEST_PEER_TLS_CERT": "/none/cert.pem"})
    assert {line.state for line in lines} == {"problem"}
    assert len(lines) == 2


@pytest.mark.parametrize("wrong", ["BEST_PEER_TLS_CERT", "BEST_PEER_TLS_KEY"])
def test_what_only_follows_from_a_wrong_file_is_no_second_problem(tmp_path: Path, wrong: str) -> None:
    """The other of the two is set, and so is this one: nobody is to be told that it is not."""
    there = tmp_path / "there.pem"
    there.write_text("x")
    pair = {"BEST_PEER_TLS_CERT": str(there), "BEST_PEER_TLS_KEY": str(there), wrong: "/none/x.pem"}
    _, (line,) = read({**HOME, "BEST_PEER_ENDPOINT": "https://peer.example", **pair})
    assert (line.state, line.what.partition(" is refused")[0]) == ("problem", f"{wrong}=/none/x.pem")


def test_what_only_follows_from_a_wrong_address_is_no_second_problem() -> None:
    _, (line,) = read({**HOME, "BEST_PEER_LISTEN": "0.0.0.0:7777", "BEST_PEER_ENDPOINT": "https//peer"})
    assert "BEST_PEER_ENDPOINT=https//peer is refused" in line.what


def test_unknown_names_and_cleartext_are_warnings() -> None:
    _, lines = read(
        {
            **HOME,
            "BEST_PEER_LISTENN": "x",
            "BEST_PEER_LISTEN": "0.0.0.0:1",
            "BEST_PEER_ENDPOINT": "http://peer.example:1",
            "BEST_PEER_CLEARTEXT": "vpn",
        }
    )
    assert [line.state for line in lines] == ["warning", "warning"]
    assert "BEST_PEER_LISTENN is no setting" in lines[0].what
    assert lines[0].remedy == "did you mean BEST_PEER_LISTEN?"


def test_settings_of_old_are_problems() -> None:
    _, lines = read({**HOME, "BEST_PEER_MEMBERS": "x"})
    assert lines[0].state == "problem"


def test_a_file_is_read_as_systemd_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "env"
    file.write_text(
        "# a comment\n; another\n\nBEST_PEER_RUNTIME=process\n BEST_PEER_DATA = \"/a b\" \nX='$HOME'\nY=\n"
    )
    assert read_file(file) == (
        {"BEST_PEER_RUNTIME": "process", "BEST_PEER_DATA": "/a b", "X": "$HOME", "Y": ""},
        (),
    )


@pytest.mark.parametrize("line", ["bpa_secret", "export A=b", "=x"])
def test_a_line_that_is_none_is_told_by_its_number_alone(tmp_path: Path, line: str) -> None:
    file = tmp_path / "env"
    file.write_text(f"A=b\n{line}\nC=d\n")
    found, (told,) = read_file(file)
    assert found == {"A": "b", "C": "d"}
    assert (told.state, told.what) == ("warning", f"line 2 of {file} is no NAME=value")
    file.write_text(f"{line}\n" * 9)
    _, (told,) = read_file(file)
    assert told.what == f"lines 1, 2, 3, 4, 5 and 4 more of {file} are no NAME=value"
