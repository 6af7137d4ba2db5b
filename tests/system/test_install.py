"""`scripts/install.sh`: installs, upgrades in place, and changes nothing where it refuses or is cut off."""

from __future__ import annotations

import hashlib
import http.server
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from tests.support.peers import PeerProcess
from tests.support.programs import program
from tests.support.releases import made_up_wheel, sign, wheelhouse

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "install.sh"
SECONDS = 300.0
"""A bound on a hang, no measure of speed."""
BASE_PYTHON = str(Path(getattr(sys, "_base_executable", sys.executable)).resolve())


@attrs.define
class Person:
    """Somebody's home, and what the script does there."""

    home: Path
    script: Path = SCRIPT

    @property
    def link(self) -> Path:
        """The command."""
        return self.home / ".local/bin/best-peer"

    @property
    def share(self) -> Path:
        """Where the program lies."""
        return self.home / ".local/share/best-peer"

    @property
    def whole(self) -> dict[str, str]:
        """The environment of a run."""
        return {
            "HOME": str(self.home),
            "PATH": "/usr/bin:/bin",
            "BEST_PEER_PYTHON": BASE_PYTHON,
            "PIP_NO_COMPILE": "1",
        }

    def run(self, *arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        return subprocess.run(
            ["sh", str(self.script), *map(str, arguments)],
            env={**self.whole, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def installs(self, *arguments: str | Path, **more: str) -> str:
        """Run it; what it said."""
        ran = self.run(*arguments, **more)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def refuses(self, *arguments: str | Path, code: int = 1, **more: str) -> str:
        """Run it where it must refuse; its one line, the last of them where it fails."""
        ran = self.run(*arguments, **more)
        assert ran.returncode == code, ran.stdout + ran.stderr
        lines = ran.stderr.splitlines()
        assert code == 2 or len(lines) == 1, ran.stderr
        return lines[-1]

    def version(self) -> str:
        """What the command says that it is."""
        ran = subprocess.run(
            [self.link, "--version"], capture_output=True, text=True, timeout=SECONDS, check=True
        )
        return ran.stdout.strip()

    def versions(self) -> set[str]:
        """The versions that are kept."""
        return {path.name.partition("-")[0] for path in self.share.iterdir() if path.is_dir()}


@pytest.fixture
def person(tmp_path: Path) -> Person:
    home = tmp_path / "a home"
    home.mkdir()
    return Person(home)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of two versions, and of two that come before one."""
    folder = tmp_path_factory.mktemp("release")
    for version in ("1.0", "1.9.0", "1.10.0", "2.0rc1", "2.0.dev1"):
        made_up_wheel(folder, version)
    sign(folder)
    return folder


def tree(folder: Path) -> dict[str, str]:
    """Every file below a folder by its digest, every link by where it leads."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[str(path)] = os.readlink(path)
        elif path.is_file():
            found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def test_it_is_plain_sh_that_shellcheck_finds_nothing_in() -> None:
    ran = subprocess.run(
        [program("shellcheck"), "--shell=sh", "--enable=quote-safe-variables", str(SCRIPT)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "")


def test_an_install_is_upgraded_pinned_and_repeated_in_place(
    person: Person, release: Path, tmp_path: Path
) -> None:
    said = person.installs(release, "--version", "1.9.0")
    assert person.version() == "best-peer 1.9.0"
    assert f'export PATH="{person.link.parent}:$PATH"' in said
    first = os.readlink(person.link)

    # The newest that is none on the way to one; where the command is, it stays.
    person.installs(release, BEST_PEER_INSTALL_DIR=str(person.link.parent))
    assert person.version() == "best-peer 1.10.0"
    assert person.versions() == {"1.9.0", "1.10.0"}

    before = tree(person.home)
    said = person.installs(release, PATH=f"{person.link.parent}:/usr/bin:/bin")
    assert "1.10.0 is installed already" in said
    assert "PATH" not in said
    assert tree(person.home) == before

    person.installs(BEST_PEER_SOURCE=str(release), BEST_PEER_VERSION="1.9.0")
    assert person.version() == "best-peer 1.9.0"
    assert os.readlink(person.link) == first
    assert [path.name for path in person.link.parent.iterdir()] == ["best-peer"]

    # What does not run leaves the one before.
    broken = tmp_path / "broken"
    broken.mkdir()
    made_up_wheel(broken, "3.0", works=False)
    sign(broken)
    assert "does not run" in person.refuses(broken, code=2)
    assert person.version() == "best-peer 1.9.0"
    assert "3.0" not in person.versions()
    assert not (person.share / ".lock").exists()


def test_a_rerun_upgrades_the_command_where_it_is_found_on_the_path(
    person: Person, release: Path, tmp_path: Path
) -> None:
    chosen = tmp_path / "chosen"
    person.installs(release, "--version", "1.9.0", BEST_PEER_INSTALL_DIR=str(chosen))
    first = os.readlink(chosen / "best-peer")
    person.installs(release, PATH=f"{chosen}:/usr/bin:/bin")
    assert os.readlink(chosen / "best-peer") != first
    assert not person.link.is_symlink(), "no second one"


def test_what_is_not_what_was_released_is_refused_and_changes_nothing(person: Person, tmp_path: Path) -> None:
    folder = tmp_path / "damaged"
    folder.mkdir()
    made_up_wheel(folder, "1.0")
    sign(folder)
    made_up_wheel(folder, "1.0", size=1)
    assert "does not match SHA256SUMS" in person.refuses(folder)
    (folder / "SHA256SUMS").write_text(f"{'0' * 64}  ../../etc/passwd\n")
    assert "line 1" in person.refuses(folder)
    sign(folder)
    (folder / "wheelhouse").mkdir()
    (folder / "wheelhouse" / "x-1-py3-none-any.whl").write_text("was listed")
    sign(folder)
    (folder / "wheelhouse" / "x-1-py3-none-any.whl").write_text("was changed")
    assert "does not match SHA256SUMS" in person.refuses(folder)
    assert not person.link.exists()
    assert person.versions() == set()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name a release"),
        (["--nonsense"], "--nonsense is no option"),
        (["a", "b"], "b is one argument too many"),
        (["--version"], "--version needs a value"),
        (["x", "--version", "1/../.."], "is no version"),
        (["--uninstall", "x"], "--uninstall takes nothing else"),
        (["/no/such/folder"], "/no/such/folder has no SHA256SUMS"),
        (["http://192.0.2.7/release"], "is refused: expected a folder, or an https://"),
        (["https://ann:hunter2@192.0.2.7/release"], "https://...@192.0.2.7/release is refused"),
        (["ftp://192.0.2.7/release"], "is refused"),
    ],
)
def test_nonsense_is_refused_in_one_line(person: Person, arguments: list[str], said: str) -> None:
    line = person.refuses(*arguments)
    assert said in line
    assert "hunter2" not in line
    assert not person.link.exists()


def test_a_version_that_is_not_there_is_refused_with_those_that_are(person: Person, release: Path) -> None:
    line = person.refuses(release, BEST_PEER_VERSION="7.0")
    assert "there is no 7.0" in line
    assert "1.0, 1.9.0, 1.10.0" in line


def test_what_this_machine_lacks_is_named_with_the_remedy(
    person: Person, release: Path, tmp_path: Path
) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    assert "Python 3.11 or newer is needed" in person.refuses(release, code=2, BEST_PEER_PYTHON=str(old))
    bare = tmp_path / "bare"
    bare.write_text('#!/bin/sh\ncase "$*" in *venv*) exit 1 ;; esac\n')
    bare.chmod(0o755)
    assert "python3-venv" in person.refuses(release, code=2, BEST_PEER_PYTHON=str(bare))


def test_a_command_of_somebody_elses_is_not_replaced(person: Person, release: Path) -> None:
    person.link.parent.mkdir(parents=True)
    person.link.write_text("#!/bin/sh\necho mine\n")
    assert "none of this script's" in person.refuses(release, "--version", "1.0")
    assert person.link.read_text().endswith("echo mine\n")


def cut_off(person: Person, release: Path, number: signal.Signals) -> None:
    """Begin an upgrade to 1.9.0 and end it in the middle, with all that it started."""
    process = subprocess.Popen(
        ["sh", str(SCRIPT), str(release), "--version", "1.9.0"],
        env=person.whole,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    end = time.monotonic() + SECONDS
    try:
        while "1.9.0" not in person.versions():
            assert process.poll() is None, "it ended before it was to be cut off"
            assert time.monotonic() < end
            time.sleep(0.002)
    finally:
        os.killpg(process.pid, number)
        process.wait(SECONDS)


def test_an_upgrade_that_is_cut_off_leaves_the_old_one_and_the_next_makes_it_whole(
    person: Person, release: Path
) -> None:
    person.installs(release, "--version", "1.0")
    cut_off(person, release, signal.SIGTERM)
    assert person.version() == "best-peer 1.0"
    # It cleans up after itself.
    assert person.versions() == {"1.0"}
    assert not (person.share / ".lock").exists()

    cut_off(person, release, signal.SIGKILL)
    assert person.version() == "best-peer 1.0"
    person.installs(release, "--version", "1.9.0")
    assert person.version() == "best-peer 1.9.0"
    assert {path.name.partition("-")[0] for path in person.share.iterdir()} == {"1.0", "1.9.0"}


def test_another_install_is_waited_for_by_the_person(person: Person, release: Path) -> None:
    lock = person.share / ".lock"
    lock.mkdir(parents=True)
    (lock / "pid").write_text(f"{os.getpid()}\n")
    assert f"another install (pid {os.getpid()})" in person.refuses(release, code=2)
    assert lock.exists()


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a release, and leads on from /away to elsewhere."""

    def do_GET(self) -> None:
        if self.path.startswith("/away/"):
            self.send_response(302)
            self.send_header("location", "http://192.0.2.7/SHA256SUMS")
            self.send_header("content-length", "0")
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join(SECONDS)
        server.server_close()


def test_a_release_is_taken_from_an_address_by_a_pipe_too(person: Person, release: Path) -> None:
    with served(release) as address, SCRIPT.open("rb") as script:
        piped = subprocess.run(
            ["sh"],
            stdin=script,
            env={**person.whole, "BEST_PEER_SOURCE": f"{address}/", "BEST_PEER_VERSION": "1.0"},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert piped.returncode == 0, piped.stderr
        assert person.version() == "best-peer 1.0"
        assert "which is not https" in person.refuses(f"{address}/away", code=2)
        assert "has no SHA256SUMS (404)" in person.refuses(f"{address}/nothing")
    assert "could not be had" in person.refuses(address, code=2)
    assert person.version() == "best-peer 1.0"


def manager_in(folder: Path) -> Path:
    """A systemctl that writes down what it is asked, and fails to restart where a file says so."""
    folder.mkdir()
    program = folder / "systemctl"
    program.write_text(
        f'#!/bin/sh\necho "$*" >>{folder}/asked\n'
        f"case $* in *restart*) if [ -e {folder}/fails ]; then exit 1; fi ;; esac\n"
    )
    program.chmod(0o755)
    return folder


def test_a_unit_is_written_for_the_command_and_goes_with_it(
    person: Person, release: Path, tmp_path: Path
) -> None:
    unit = person.home / ".config/systemd/user/best-peer.service"
    said = person.installs(release, "--version", "1.0", "--systemd", XDG_RUNTIME_DIR=str(person.home))
    assert unit.read_text().splitlines()[1] == f"ExecStart={person.link}"
    assert "systemctl --user enable --now best-peer.service" in said
    assert "loginctl enable-linger" in said

    manager = manager_in(tmp_path / "bin")
    path = f"{manager}:/usr/bin:/bin"
    said = person.installs(release, "--version", "1.0", "--systemd", PATH=path)
    assert "best-peer.service runs, and starts at each login" in said
    assert (manager / "asked").read_text().splitlines() == [
        "--user show-environment",
        "--user daemon-reload",
        "--user enable --quiet best-peer.service",
        "--user restart best-peer.service",
    ]
    (manager / "fails").touch()
    line = person.refuses(release, "--version", "1.0", "--systemd", code=2, PATH=path)
    assert "1.0 is installed and its unit does not start: best-peer check" in line

    # Somebody's own unit is theirs.
    written = unit.read_text()
    unit.write_text("[Service]\nExecStart=/mine\n")
    said = person.installs(release, "--version", "1.0", "--systemd", XDG_RUNTIME_DIR=str(person.home))
    assert f"{unit} is not this script's and is left as it is" in said
    assert unit.read_text().endswith("/mine\n")
    unit.write_text(written)

    data = person.home / ".best-peer"
    data.mkdir()
    (data / "keys.jsonl").write_text("{}\n")
    # Of a run that was killed.
    (person.share / ".work").mkdir()
    (person.share / ".work" / "best_peer-1.0-py3-none-any.whl").touch()
    said = person.installs("--uninstall")
    assert str(data) in said
    assert not person.share.exists()
    assert sorted(path.name for path in person.home.rglob("*") if path.is_file()) == ["keys.jsonl"]
    assert not person.link.is_symlink()
    unit.write_text("[Service]\nExecStart=/mine\n")
    assert "nothing is installed" in person.installs("--uninstall")
    assert unit.exists()


@contextmanager
def running(person: Person, *arguments: str, data: Path) -> Iterator[int]:
    """A process of an installed version, and its pid."""
    (python,) = person.share.glob("*/bin/python")
    process = subprocess.Popen(
        [str(python), "-c", "input()", *arguments],
        env={**person.whole, "BEST_PEER_DATA": str(data)},
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process.pid
    finally:
        process.communicate()


def test_what_still_runs_is_named_and_nothing_of_it_is_removed(
    person: Person, release: Path, tmp_path: Path
) -> None:
    manager = manager_in(tmp_path / "bin")
    path = f"{manager}:/usr/bin:/bin"
    person.installs(release, "--version", "1.0", "--systemd", PATH=path)
    (manager / "asked").unlink()
    before = tree(person.home)
    with running(person, str(person.link), data=tmp_path / "data") as pid:
        line = person.refuses("--uninstall", code=2, PATH=path)
        assert f"best-peer runs (pid {pid}, data in {tmp_path / 'data'})" in line
        assert "nothing was changed" in line
    with running(person, "of a model", data=tmp_path / "data") as pid:
        assert f"a model runs that a peer started (pid {pid})" in person.refuses(
            "--uninstall", code=2, PATH=path
        )
    assert tree(person.home) == before
    asked = set((manager / "asked").read_text().splitlines())
    assert asked == {"--user show-environment", "--user show --property MainPID --value best-peer.service"}
    person.installs("--uninstall", PATH=path)
    assert not person.share.exists()


def test_a_peer_that_runs_is_told_of_and_only_where_one_runs_by_another_version(
    person: Person, release: Path, tmp_path: Path
) -> None:
    person.installs(release, "--version", "1.9.0")
    with running(person, str(person.link), data=tmp_path) as pid:
        behind = (
            f"best-peer runs (pid {pid}) and goes on with the version it was started with: start it again"
        )
        assert "next: best-peer check\n" in person.installs(release, "--version", "1.9.0")
        for version in ("1.10.0", "1.10.0", "1.0"):
            said = person.installs(release, "--version", version)
            assert f"{behind}\n" in said
            assert "systemctl" not in said
            assert "next:" not in said
        manager = manager_in(tmp_path / "bin")
        said = person.installs(release, "--systemd", PATH=f"{manager}:/usr/bin:/bin")
        assert f"{behind} (systemctl --user restart best-peer.service)\n" in said
    person.installs("--uninstall")


def test_an_upgrade_with_no_peer_that_runs_says_nothing_of_one(
    person: Person, release: Path, tmp_path: Path
) -> None:
    person.installs(release, "--version", "1.9.0")
    with running(person, str(person.link), "status", data=tmp_path):
        for version in ("1.10.0", "1.9.0"):
            said = person.installs(release, "--version", version)
            assert "next: best-peer check\n" in said
            assert "runs" not in said


@pytest.mark.parametrize("data", ["", "data"], ids=["its own folder", "a folder in it"])
def test_data_that_lies_beside_the_program_is_never_touched(person: Person, release: Path, data: str) -> None:
    """``BEST_PEER_DATA=~/.local/share/best-peer`` is where many a person would put it."""
    kept = person.share / data
    for name in ("events", "tls", "models"):
        (kept / name).mkdir(parents=True)
        (kept / name / "a file").write_text("of the peer's\n")
    before = tree(person.home)
    person.installs(release, "--version", "1.0")
    assert set(before.items()) <= set(tree(person.home).items())
    said = person.installs("--uninstall")
    assert tree(person.home) == before
    assert f"{person.share} holds more than best-peer" in said


def test_the_product_itself_is_installed_over_its_data_with_no_index(person: Person, tmp_path: Path) -> None:
    folder = tmp_path / "release"
    made = subprocess.run(
        [str(ROOT / "scripts" / "release"), str(folder)],
        env={**os.environ, "BEST_PEER_VENV": sys.prefix},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert (folder / "install.sh").read_bytes() == SCRIPT.read_bytes()
    wheelhouse(folder / "wheelhouse", "best-peer")
    (version,) = [path.name.split("-")[1] for path in folder.glob("best_peer-*.whl")]
    made_up_wheel(folder, "0.0.1")
    sign(folder)

    person.script = folder / "install.sh"
    person.installs("--version", "0.0.1")  # its own folder is the release
    peer = PeerProcess(person.home)
    with peer:
        peer.sign_in()
        peer.stop()
    before = tree(peer.data)
    person.installs(folder, PIP_INDEX_URL="http://127.0.0.1:9/none")
    assert tree(peer.data) == before
    assert person.version() == f"best-peer {version}"

    ran = subprocess.run([person.link, "--help"], capture_output=True, text=True, timeout=SECONDS, check=True)
    assert "approve" in ran.stdout
    unit = subprocess.run(
        [person.link, "service"], capture_output=True, text=True, timeout=SECONDS, check=True
    ).stdout
    assert f'ExecStart="{person.link}"' in unit
    checked = subprocess.run(
        [person.link, "check"],
        env={
            **person.whole,
            "BEST_PEER_DATA": str(peer.data),
            "BEST_PEER_GPU": "none",
            "BEST_PEER_RUNTIME": "fake",
        },
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"best-peer {version} on Python" in checked.stdout
