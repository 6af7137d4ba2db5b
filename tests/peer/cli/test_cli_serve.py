"""The real program: started, used by its owner over the commands, and stopped (F12, F13, F33, F37)."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actors.messages.times import time_text
from peer.door.server import bind
from peer.folder import DataFolder
from tests.peer.cli.conftest import SECONDS
from tests.support.agents import DEVICE_GRANT
from tests.support.peers import PeerProcess, environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    from tests.peer.cli.conftest import Ran
    from tests.support.docker.bed import DockerBed

ROOT = Path(__file__).parents[3]


@pytest.fixture
def served(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PeerProcess]:
    """A peer in a process of its own; commands look into its data folder."""
    with PeerProcess(tmp_path) as process:
        monkeypatch.setenv("BEST_PEER_DATA", str(process.data))
        yield process


def begin(client: httpx.Client, **form: str) -> dict[str, Any]:
    """A sign-in that waits for its approval."""
    answer = client.post("/oauth/device", data={"client_id": "an-agent", "connection": "lab", **form})
    assert answer.status_code == 200, answer.text
    begun: dict[str, Any] = answer.json()
    return begun


def fetch(client: httpx.Client, begun: dict[str, Any]) -> dict[str, Any]:
    """Its key."""
    form = {"grant_type": DEVICE_GRANT, "device_code": begun["device_code"], "client_id": "an-agent"}
    answer = client.post("/oauth/token", data=form)
    assert answer.status_code == 200, answer.text
    credential: dict[str, Any] = answer.json()
    return credential


def command(client: httpx.Client, kind: str, path: str, data: dict[str, Any]) -> None:
    """Send a command that is taken; its id is its type."""
    answer = post(client, kind, path, data)
    assert answer.status_code == 201, answer.text


def post(client: httpx.Client, kind: str, path: str, data: dict[str, Any]) -> httpx.Response:
    """What the door answers to a command whose id is its type."""
    sent = {
        "specversion": "1.0",
        "id": kind,
        "source": "urn:test",
        "type": kind,
        "time": time_text(0),
        "datacontenttype": "application/json",
        "dataschema": f"{str(client.base_url).rstrip('/')}/commands/{path}/1.0",
        "data": data,
    }
    return client.post("/commands", json=sent)


def wait_for(client: httpx.Client, kind: str) -> dict[str, Any]:
    """The first event of a type, told or to come."""
    with client.stream(
        "GET", "/events/stream", params={"type": kind}, headers={"last-event-id": "evt-0"}
    ) as stream:
        for line in stream.iter_lines():
            if line.startswith("data:"):
                found: dict[str, Any] = json.loads(line.removeprefix("data:"))
                return found
    raise AssertionError(f"the stream ended without {kind}")


def test_an_owner_lets_an_agent_in_looks_and_takes_its_key_back(
    cli: Callable[..., Ran], served: PeerProcess
) -> None:
    with served.client() as client:
        begun = begin(client, agent_label="Claude")
        ran = cli("approve", begun["user_code"], "--memory", "2G", "--expires", "8h")
        assert (ran.code, ran.err) == (0, "")
        assert "agent       Claude" in ran.out
        assert cli("approve", begun["user_code"]).code == 1
        credential = fetch(client, begun)
        again = cli("approve", begun["user_code"])
        assert "was used already" in again.line
    with served.client(**{"x-api-key": credential["access_token"]}) as client:
        promised = {"model": "small", "engine": "llamacpp", "memory_bytes": 1 << 30}
        command(client, "DeployModel", "deploy-model", promised)
        deployment = wait_for(client, "DeploymentReady")["data"]["deployment"]
        words = "the words of a conversation"
        command(
            client,
            "Prompt",
            "prompt",
            {"deployment": deployment, "messages": [{"role": "user", "content": words}]},
        )
        wait_for(client, "PromptAnswered")

        status = cli("status", "--json").json
        assert status["workloads"]["deployments"][0]["deployment"] == deployment
        assert "small" in cli("status").out
        events = cli("events")
        assert "DeploymentReady" in events.out
        assert "PromptAnswered" in events.out
        assert words not in events.out + cli("events", "--json").out

        revoked = cli("revoke", "lab")
        assert (revoked.code, revoked.err) == (0, "")
        assert f"Taken back: lab ({credential['tenant_id']})" in revoked.out
        assert "Nothing of it runs any more." in revoked.out
        assert client.get("/events").status_code == 401
    assert "DeploymentEnded" in cli("events").out
    assert served.stop() == 0
    assert "DeploymentEnded" in cli("events", "--type", "DeploymentEnded").out, "the log needs no peer"
    ran = cli("status")
    assert ran.code == 2
    assert "no peer serves" in ran.line


def test_an_owner_reaches_a_door_that_serves_its_own_certificate(
    tmp_path: Path, cli: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    with PeerProcess(tmp_path, https=True) as served:
        monkeypatch.setenv("BEST_PEER_DATA", str(served.data))
        with served.client() as client:
            begun = begin(client)
            assert cli("approve", begun["user_code"], "--may", "prompt").code == 0
            assert fetch(client, begun)["scope"] == "prompt"
        assert cli("status", "--json").json["endpoint"].startswith("https://")
        assert served.stop() == 0


def test_a_killed_peers_record_is_not_believed(cli: Callable[..., Ran], served: PeerProcess) -> None:
    served.kill()
    assert (served.data / "door.json").exists()
    ran = cli("status")
    assert ran.code == 2
    assert "ended without closing its door: start it again" in ran.line
    served.start()
    assert cli("status").code == 0


def run_peer(folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """A start that is refused."""
    return subprocess.run(
        [sys.executable, "-m", "peer"],
        env={**environment(folder), **settings},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS * 3,
        check=False,
    )


def test_a_second_peer_on_a_folder_is_refused(served: PeerProcess, tmp_path: Path) -> None:
    assert served.process is not None
    ran = run_peer(tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    (line,) = ran.stderr.splitlines()
    assert f"another peer (pid {served.process.pid}) runs on {served.data}: stop it first" in line
    assert served.stop() == 0


def test_a_taken_port_is_refused(tmp_path: Path) -> None:
    with bind("127.0.0.1", 0) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = run_peer(tmp_path, BEST_PEER_LISTEN=address)
    assert (ran.returncode, ran.stdout) == (2, "")
    (line,) = ran.stderr.splitlines()
    assert f"cannot listen on {address}" in line
    assert "BEST_PEER_LISTEN" in line


def test_an_address_of_another_machine_is_refused_with_a_remedy_of_its_own(tmp_path: Path) -> None:
    address = "192.0.2.7:7777"
    ran = run_peer(tmp_path, BEST_PEER_LISTEN=address, BEST_PEER_ENDPOINT=f"https://{address}")
    assert (ran.returncode, ran.stdout) == (2, "")
    (line,) = ran.stderr.splitlines()
    assert "cannot listen on 192.0.2.7:7777" in line
    assert "0.0.0.0:7777" in line
    assert "end what listens there" not in line


def test_a_bad_setting_is_refused(tmp_path: Path) -> None:
    ran = run_peer(tmp_path, BEST_PEER_READY_SECONDS="soon")
    assert (ran.returncode, ran.stdout) == (1, "")
    (line,) = ran.stderr.splitlines()
    assert line.startswith("best-peer: BEST_PEER_READY_SECONDS=soon is refused: ")
    assert not (tmp_path / "peer").exists()


def test_a_start_without_docker_is_refused_with_the_ways_on(tmp_path: Path) -> None:
    ran = run_peer(tmp_path, BEST_PEER_RUNTIME="docker", DOCKER_HOST=f"unix://{tmp_path}/none.sock")
    assert (ran.returncode, ran.stdout) == (2, "")
    (line,) = ran.stderr.splitlines()
    assert f"the container engine at unix://{tmp_path}/none.sock does not answer" in line
    assert "BEST_PEER_RUNTIME=process" in line
    assert not (tmp_path / "peer" / "door.json").exists()


def test_a_signal_ends_a_start_that_waits_for_the_container_engine(tmp_path: Path) -> None:
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(path))
        mute.listen()
        mute.settimeout(SECONDS * 3)
        starting = subprocess.Popen(
            [sys.executable, "-m", "peer"],
            env={**environment(tmp_path), "BEST_PEER_RUNTIME": "docker", "DOCKER_HOST": f"unix://{path}"},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            mute.accept()[0].close()  # it has begun, and asks again
            with mute.accept()[0]:
                starting.send_signal(signal.SIGTERM)
                out, _ = starting.communicate(timeout=SECONDS)
        finally:
            starting.kill()
            starting.wait()
    assert (starting.returncode, out) == (0, "")


def test_a_data_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "peer").write_text("")
    ran = run_peer(tmp_path)
    assert ran.returncode == 2
    (line,) = ran.stderr.splitlines()
    assert "is not a folder" in line


def test_a_damaged_record_of_keys_is_named_with_what_to_do(served: PeerProcess, tmp_path: Path) -> None:
    served.sign_in()
    assert served.stop() == 0
    keys = served.data / "keys.jsonl"
    whole = keys.read_bytes()
    keys.write_bytes(b"nobody wrote this\n" + whole)
    ran = run_peer(tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    line = ran.stderr.splitlines()[-1]
    assert f"the peer could not start: {keys}: " in line
    assert line.endswith("or put back a copy of the file")
    assert "Errno" not in line
    keys.write_bytes(whole)
    with PeerProcess(tmp_path) as again:
        assert again.stop() == 0


def test_a_full_disk_is_named_with_what_to_do(docker_bed: DockerBed, tmp_path: Path) -> None:
    # What mounts is the bed's namespaces: the machine sees nothing of it.
    data = tmp_path / "peer"
    data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", data], check=True)
    try:
        fill(data)
        ran = run_peer(tmp_path)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert str(data) in ran.stderr.splitlines()[-1]
        assert "free some" in ran.stderr.splitlines()[-1]
        (data / "filler").unlink()
        with PeerProcess(tmp_path) as served, served.client(**{"X-Api-Key": served.sign_in()}) as client:
            deploy = {"model": "small", "engine": "llamacpp", "memory_bytes": 1 << 26}
            fill(data)
            refused = post(client, "DeployModel", "deploy-model", deploy)
            assert refused.status_code == 503, refused.text
            assert refused.json()["error"]["code"] == "NO_ROOM"
            (data / "filler").unlink()
            assert post(client, "DeployModel", "deploy-model", deploy).status_code == 201
            assert served.stop() == 0
    finally:
        subprocess.run(["umount", "-l", data], check=True)


def fill(folder: Path) -> None:
    """Leave no room on a folder's file system."""
    with (folder / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_a_setting_that_is_none_is_warned_of_in_the_log(tmp_path: Path) -> None:
    with PeerProcess(tmp_path, settings={"BEST_PEER_LISTENN": "x"}) as served:
        assert served.stop() == 0
        assert "BEST_PEER_LISTENN is no setting" in served.log.read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_as_done(served: PeerProcess, number: signal.Signals) -> None:
    assert served.process is not None
    served.process.send_signal(number)
    served.process.communicate(timeout=SECONDS)
    assert served.process.returncode == 0
    assert not (served.data / "door.json").exists()


_SIGNALLED_WHILE = """
import signal, sys

class Named:
    def __set_name__(self, owner, name):
        signal.raise_signal(number)  # an exception here would become another

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            type("Loading", (), {"inside": Named()})

module, number = sys.argv.pop(1), signal.Signals(int(sys.argv.pop(1)))
sys.meta_path.insert(0, Finder())
from peer.__main__ import main

sys.exit(main())
"""


@pytest.mark.parametrize(
    ("module", "number"),
    [
        ("peer.cli.outcome", signal.SIGINT),
        ("peer.cli.serve", signal.SIGINT),
        ("peer.lifecycle", signal.SIGINT),
        ("peer.lifecycle", signal.SIGTERM),
        ("quart", signal.SIGINT),
        ("quart", signal.SIGTERM),
    ],
)
def test_a_signal_before_it_serves_is_no_failure(tmp_path: Path, module: str, number: signal.Signals) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _SIGNALLED_WHILE, module, str(number.value)],
        env=environment(tmp_path),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS * 3,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert not (tmp_path / "peer" / "door.json").exists()
    with DataFolder.open(tmp_path / "peer"):
        pass  # nothing of it is in the way of another


def test_nobody_reading_its_line_is_no_reason_to_end() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    code = "from peer.cli.serve import _announce\n_announce('ready')\nprint('more', flush=True)"
    with os.fdopen(writing, "wb") as nobody:
        ran = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            stdout=nobody,
            stderr=subprocess.PIPE,
            timeout=SECONDS,
            check=False,
        )
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_a_person_is_asked_on_a_terminal(served: PeerProcess) -> None:
    with served.client() as client:
        begun = begin(client, agent_label="Claude")
        terminal, side = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "peer", "approve", begun["user_code"]],
            env={**environment(served.folder), "TERM": "xterm"},
            cwd=ROOT,
            stdin=side,
            stdout=side,
            stderr=side,
        )
        os.close(side)
        try:
            asked = read_until(terminal, b"[y/N] ")
            assert b"connection  lab" in asked
            os.write(terminal, b"y\n")
            assert b"is approved" in read_until(terminal, b"best-peer revoke lab")
            assert process.wait(SECONDS) == 0
        finally:
            process.kill()
            process.wait(SECONDS)
            os.close(terminal)
        assert fetch(client, begun)["scope"] == "all"


def read_until(terminal: int, end: bytes) -> bytes:
    """What a terminal shows until some text; its end, should that never come."""
    shown = b""
    while end not in shown:
        try:
            more = os.read(terminal, 4096)
        except OSError:
            break
        shown += more
        if not more:
            break
    return shown
