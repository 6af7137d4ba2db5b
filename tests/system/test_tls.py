"""The program over TLS: whom clients and the owner's commands trust, and what is refused (F14, F34)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import pytest
import trustme

from adapters.certificates import LIFETIME, ensure_certificate
from peer.folder import DataFolder
from tests.support.peers import PeerProcess, environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
SECONDS = 30.0
"""A bound on a hang, no measure of speed."""
MANIFEST = "/.well-known/best"


def command(data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One of the owner's commands."""
    return subprocess.run(
        [sys.executable, "-m", "peer", *arguments],
        env={"HOME": str(data), "PATH": os.environ["PATH"], "BEST_PEER_DATA": str(data)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def trusting(*files: str | None) -> httpx.Client:
    """A client that trusts these alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for file in files:
        context.load_verify_locations(file)
    return httpx.Client(verify=context, trust_env=False, timeout=20)


@contextmanager
def peers(folder: Path, *names: str) -> Iterator[list[PeerProcess]]:
    """Peers that each made themselves a certificate."""
    running = []
    try:
        for name in names:
            (folder / name).mkdir()
            running.append(PeerProcess(folder / name, https=True).start())
        yield running
    finally:
        for each in running:
            each.kill()


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def shown_by(endpoint: str) -> str:
    """The certificate that a door shows."""
    where = urlsplit(endpoint)
    assert where.hostname
    assert where.port
    return ssl.get_server_certificate((where.hostname, where.port), timeout=20)


def test_a_client_reaches_the_peer_that_it_trusts_and_no_other(tmp_path: Path) -> None:
    with peers(tmp_path, "a", "b") as (a, b):
        assert a.door is not None
        assert b.door is not None
        for mine, other in ((a, b), (b, a)):
            assert mine.door is not None
            with trusting(mine.door.certificate) as client:
                assert client.get(f"{mine.endpoint}{MANIFEST}").status_code == 200
                for _ in range(2):
                    with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
                        client.get(f"{other.endpoint}{MANIFEST}")
                # Their own name for themselves stands in the certificate too, and no other does.
                where = urlsplit(mine.endpoint)
                assert client.get(f"https://localhost:{where.port}{MANIFEST}").status_code == 200
        with trusting(a.door.certificate, b.door.certificate) as client:
            for each in (a, b):
                assert client.get(f"{each.endpoint}{MANIFEST}").json()
        for each in (a, b):
            ran = command(each.data, "status", "--json")
            assert (ran.returncode, ran.stderr) == (0, "")
            assert json.loads(ran.stdout)["endpoint"] == each.endpoint
        keys = {each.endpoint: each.sign_in() for each in (a, b)}
        for each, other in ((a, b), (b, a)):
            with each.client(**{"x-api-key": keys[each.endpoint]}) as client:
                assert client.get("/commands").status_code == 200
            with each.client(**{"x-api-key": keys[other.endpoint]}) as client:
                assert client.get("/commands").status_code == 401


def test_the_owners_commands_refuse_an_impostor_at_the_same_port(tmp_path: Path) -> None:
    """Another peer listens where ours was: it is shown no token, and told nothing."""
    with peers(tmp_path, "ours") as (ours,):
        record = (ours.data / "door.json").read_bytes()
        port = urlsplit(ours.endpoint).port
        assert port
        assert ours.stop() == 0
        (tmp_path / "other").mkdir()
        with (
            DataFolder.open(ours.data) as folder,
            PeerProcess(tmp_path / "other", https=True, port=port) as impostor,
        ):
            folder.door.write_bytes(record)
            folder.door.chmod(0o600)
            for order in (["status"], ["revoke", "lab"], ["approve", "BCDF-GHJK"]):
                ran = command(ours.data, *order)
                assert ran.returncode == 2, ran.stderr
                assert "does not show the certificate in" in ran.stderr
                assert "nothing was sent" in ran.stderr
            assert " request " not in impostor.log.read_text()
            assert folder.admin_token not in impostor.log.read_text()


def test_the_start_says_why_a_certificate_was_made(tmp_path: Path) -> None:
    """Easily missed 10 and 30: again when the endpoint's host changes or its end is near, and else kept."""
    peer = PeerProcess(tmp_path, https=True)
    with peer:
        port = urlsplit(peer.endpoint).port
        assert f"certificate {peer.data}/tls/cert.pem made now since there was none yet)" in peer.ready_line
        assert "https with a certificate this peer made" in peer.log.read_text()
        assert peer.stop() == 0
        kept = (peer.data / "tls" / "cert.pem").read_bytes()
        peer.start()
        assert f"certificate {peer.data}/tls/cert.pem)" in peer.ready_line
        assert (peer.data / "tls" / "cert.pem").read_bytes() == kept
        assert peer.stop() == 0
        peer.settings = {"BEST_PEER_ENDPOINT": f"https://localhost:{port}"}
        peer.start()
        assert "made now since the endpoint's host changed from 127.0.0.1 to localhost)" in peer.ready_line
        assert peer.stop() == 0
        ends = datetime.now(UTC) + timedelta(days=29)
        shutil.rmtree(peer.data / "tls")
        ensure_certificate(peer.data / "tls", "localhost", (), ends - LIFETIME)
        peer.start()
        assert (
            f"made now since it ends on {ends:%Y-%m-%d}, fewer than thirty days from now)" in peer.ready_line
        )
        assert command(peer.data, "status").returncode == 0


def put(authority: trustme.CA, chain: Path, key: Path) -> None:
    """An operator's pair, in its place."""
    leaf = authority.issue_cert("127.0.0.1")
    for path, blob in (
        (key, leaf.private_key_pem.bytes()),
        (chain, b"".join(pem.bytes() for pem in leaf.cert_chain_pems)),
    ):
        unfinished = path.with_suffix(".new")
        unfinished.write_bytes(blob)
        unfinished.replace(path)


def test_an_operators_files_are_taken_up_under_an_open_stream(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    put(authority, chain, key)
    settings = {"BEST_PEER_TLS_CERT": str(chain), "BEST_PEER_TLS_KEY": str(key)}
    with PeerProcess(tmp_path, settings, https=True) as peer, trusting(str(tmp_path / "ca.pem")) as client:
        begun = client.post(f"{peer.endpoint}/oauth/device", data={"client_id": "best-mcp"}).json()
        assert command(peer.data, "approve", begun["user_code"], "--yes").returncode == 0
        form = {
            "grant_type": "urn:ietf:params:oauth:grant-type:device_code",
            "device_code": begun["device_code"],
            "client_id": "best-mcp",
        }
        mine = {"x-api-key": client.post(f"{peer.endpoint}/oauth/token", data=form).json()["access_token"]}
        first = shown_by(peer.endpoint)
        with client.stream("GET", f"{peer.endpoint}/events/stream", headers=mine) as stream:
            told = stream.iter_lines()
            assert next(told) == ": open"
            # Half of a new pair: the one before is shown on, and its owner is told what to do, once.
            key.write_bytes(authority.issue_cert("127.0.0.1").private_key_pem.bytes())
            until(lambda: "cannot be (" in peer.log.read_text(), "nobody was warned")
            assert shown_by(peer.endpoint) == first
            assert command(peer.data, "status").returncode == 0
            put(authority, chain, key)
            until(lambda: shown_by(peer.endpoint) != first, "the new pair was not taken")
            assert command(peer.data, "status").returncode == 0
            with trusting(str(tmp_path / "ca.pem")) as another:
                assert another.get(f"{peer.endpoint}{MANIFEST}").status_code == 200
                sent = {"client_id": "best-mcp", "connection": "another"}
                later = another.post(f"{peer.endpoint}/oauth/device", data=sent).json()
                assert command(peer.data, "approve", later["user_code"], "--yes").returncode == 0
            assert client.get(f"{peer.endpoint}/commands", headers=mine).status_code == 200
            peer.send(signal.SIGTERM)
            assert [line for line in told if line][-1] == ": closed", (
                "the stream lived to the end of the peer"
            )
        assert peer.wait() == 0
        log = peer.log.read_text()
        assert log.count("cannot be (") == 1
        assert log.count("serving with the certificate that is now in") == 1
        for secret in (key.read_text().split("\n")[1], "PRIVATE KEY"):
            assert secret not in log


@pytest.mark.filterwarnings("ignore:.*TLSv1_1.*:DeprecationWarning")
def test_nothing_older_than_tls_1_2_and_nothing_in_the_clear_is_served(tmp_path: Path) -> None:
    with peers(tmp_path, "a") as (a,):
        where = urlsplit(a.endpoint)
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname = False
        old.verify_mode = ssl.CERT_NONE
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        old.set_ciphers("ALL:@SECLEVEL=0")
        with (
            socket.create_connection((where.hostname, where.port), timeout=20) as connection,
            pytest.raises((ssl.SSLError, ConnectionResetError)),
        ):
            old.wrap_socket(connection)
        with httpx.Client(trust_env=False, timeout=20) as client:
            for path in (MANIFEST, "/oauth/device", "/nowhere"):
                # The same for every path: that this is https, and nothing of what is behind it.
                answer = client.get(f"http://{where.netloc}{path}")
                assert (answer.status_code, answer.json()["error"]["code"]) == (400, "BAD_REQUEST")
                assert list(answer.json()) == ["error"]
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = a.tls
            context.minimum_version = context.maximum_version = version
            with httpx.Client(verify=context, trust_env=False, timeout=20) as client:
                assert client.get(f"{a.endpoint}{MANIFEST}").status_code == 200


NO_ADDRESS = (
    "BEST_PEER_ENDPOINT is not set: BEST_PEER_LISTEN=0.0.0.0:0 does not say by which address consumers reach "
    "the door; set BEST_PEER_ENDPOINT=https://<address they reach>:<port>"
)
ELSEWHERE = "http://gpu.example:7777"
OFF_LOOPBACK = (
    "BEST_PEER_ENDPOINT=http://gpu.example:7777 is refused: http:// is served on loopback alone, and {} not "
    "loopback; set BEST_PEER_ENDPOINT=https://gpu.example:7777, or BEST_PEER_CLEARTEXT=vpn where a VPN "
    "encrypts every hop"
)


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        ({"BEST_PEER_LISTEN": "0.0.0.0:0"}, NO_ADDRESS),
        (
            {"BEST_PEER_LISTEN": "0.0.0.0:7777", "BEST_PEER_ENDPOINT": ELSEWHERE},
            OFF_LOOPBACK.format(
                "BEST_PEER_LISTEN=0.0.0.0:7777 and BEST_PEER_ENDPOINT=http://gpu.example:7777 are"
            ),
        ),
        (
            {"BEST_PEER_ENDPOINT": ELSEWHERE},
            OFF_LOOPBACK.format("BEST_PEER_ENDPOINT=http://gpu.example:7777 is"),
        ),
    ],
    ids=["no endpoint", "both", "endpoint"],
)
def test_in_the_clear_off_loopback_refuses_the_start(
    tmp_path: Path, settings: dict[str, str], refusal: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "peer"],
        env={**environment(tmp_path), **settings},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr == f"best-peer: {refusal}\n"
    assert not (tmp_path / "peer").exists()


def test_in_the_clear_by_a_vpn_is_served_with_a_warning(tmp_path: Path) -> None:
    settings = {
        "BEST_PEER_LISTEN": "0.0.0.0:0",
        "BEST_PEER_ENDPOINT": "http://gpu.example:0",
        "BEST_PEER_CLEARTEXT": "vpn",
    }
    with PeerProcess(tmp_path, settings) as peer:
        assert peer.endpoint.startswith("http://gpu.example:")
        assert "WARNING peer " in peer.log.read_text()
        assert "BEST_PEER_CLEARTEXT=vpn" in peer.log.read_text()
        assert command(peer.data, "status").returncode == 0


def test_a_certificate_too_large_for_the_record_is_found_by_its_file(tmp_path: Path) -> None:
    """A record that no command could read would be worse than one without it."""
    alternatives = [f"name-{number}.some.long.domain.example" for number in range(600)]
    leaf = trustme.CA().issue_cert("127.0.0.1", *alternatives)
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    leaf.private_key_pem.write_to_path(key)
    leaf.cert_chain_pems[0].write_to_path(chain)
    assert chain.stat().st_size > 16 * 1024
    settings = {"BEST_PEER_TLS_CERT": str(chain), "BEST_PEER_TLS_KEY": str(key)}
    with PeerProcess(tmp_path, settings, https=True) as peer:
        assert peer.door is not None
        assert peer.door.pins == ()
        assert command(peer.data, "status").returncode == 0
