"""What is said of the port, the endpoint and the firewall."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trustme

from peer.addresses import Address, Endpoint
from peer.checks.network import (
    Asked,
    Origin,
    ask,
    endpoint_lines,
    firewall_lines,
    listener,
    origin_of,
    port_lines,
    reached,
    resolved,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

EVERYWHERE = Address("0.0.0.0", 7777)
FAR = Endpoint("https", "peer.example", 7777)


@contextmanager
def listening() -> Iterator[int]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield sock.getsockname()[1]


def test_a_free_port_is_ok_and_free_afterwards() -> None:
    with listening() as port:
        pass
    address = Address("127.0.0.1", port)
    for _ in range(2):
        (line,) = port_lines(address, [])
        assert (line.state, line.what) == ("ok", f"{address} is free")


def test_a_taken_port_is_a_problem_that_names_whose_it_is() -> None:
    with listening() as port:
        (line,) = port_lines(Address("127.0.0.1", port), [])
    assert line.state == "problem"
    assert f"listens on port {port} already" in line.what
    assert line.remedy is not None
    assert "BEST_PEER_LISTEN" in line.remedy


def test_a_port_that_our_own_peer_has_is_ok() -> None:
    with listening() as port:
        address = Address("127.0.0.1", port)
        (line,) = port_lines(address, [str(address)])
        assert line.state == "ok"
        assert port_lines(Address("127.0.0.1", 0), [str(address)])[0].state == "ok"


def test_a_port_that_the_system_chooses_is_ok() -> None:
    assert port_lines(Address("127.0.0.1", 0), [])[0].state == "ok"


@pytest.mark.parametrize("host", ["192.0.2.7", "no-such-host.invalid"])
def test_an_address_of_another_machine_cannot_be_listened_on(host: str) -> None:
    (line,) = port_lines(Address(host, 7777), [])
    assert line.state == "problem"
    assert host in line.what
    assert "an address of this machine (ip addr lists them), or to 0.0.0.0:7777" in (line.remedy or "")


def test_the_kernels_tables_say_whose_a_port_is(tmp_path: Path) -> None:
    head = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    )
    row = (
        "   0: 0100007F:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  {uid}  0 1\n"
    )
    (tmp_path / "tcp").write_text(
        head + row.format(port=7778, state="01", uid=1) + row.format(port=7777, state="0A", uid=4294)
    )
    assert listener(7777, tmp_path) == "4294"
    assert listener(7778, tmp_path) is None
    assert listener(7777, tmp_path / "none") is None


def test_own_addresses_are_told_from_others() -> None:
    assert origin_of(["127.0.0.1"]) == "here"
    assert origin_of(["192.0.2.7"]) == "elsewhere"
    assert origin_of(["192.0.2.7", "127.0.0.1"]) == "here"
    assert origin_of([]) == "unknown"


@pytest.mark.parametrize(("origin", "state"), [("here", "ok"), ("elsewhere", "warning")])
def test_an_endpoint_that_nobody_serves_yet_is_judged_by_its_address(origin: Origin, state: str) -> None:
    assert resolved(FAR, ["192.0.2.7"], origin).state == state


@pytest.mark.parametrize(
    ("asked", "origin", "state", "said"),
    [
        (Asked(200), "here", "ok", "answers"),
        (Asked(404), "here", "problem", "answers 404"),
        (Asked(fault="Connection refused"), "here", "problem", "does not answer from here"),
        (Asked(fault="no route"), "elsewhere", "warning", "does not answer from here"),
        (Asked(fault="self-signed", is_untrusted=True), "elsewhere", "problem", "not to be trusted"),
    ],
)
def test_an_endpoint_is_judged_by_what_answers(asked: Asked, origin: Origin, state: str, said: str) -> None:
    line = reached(FAR, asked, origin)
    assert line.state == state
    assert said in line.what


async def test_a_host_without_an_address_is_a_problem() -> None:
    (line,) = await endpoint_lines(Endpoint("https", "no-such-host.invalid", 1), None, is_served=False)
    assert line.state == "problem"
    assert "no-such-host.invalid" in line.what


class Manifest(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/.well-known/best" else 404)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextmanager
def serving(chain: trustme.LeafCert | None = None) -> Iterator[int]:
    import ssl

    server = ThreadingHTTPServer(("127.0.0.1", 0), Manifest)
    if chain is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        chain.configure_cert(context)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join(20)
        server.server_close()


async def test_an_endpoint_is_asked_as_a_consumer_would() -> None:
    with serving() as port:
        (line,) = await endpoint_lines(Endpoint("http", "127.0.0.1", port), None, is_served=True)
        assert line.state == "ok"
        (line,) = await endpoint_lines(Endpoint("http", "127.0.0.1", port, "/lost"), None, is_served=True)
        assert "answers 404" in line.what
    (line,) = await endpoint_lines(Endpoint("http", "127.0.0.1", port), None, is_served=True)
    assert line.state == "problem"


async def test_a_certificate_that_is_not_the_doors_own_is_told_apart(tmp_path: Path) -> None:
    authority = trustme.CA()
    chain = authority.issue_cert("127.0.0.1")
    mine, other = tmp_path / "cert.pem", tmp_path / "other.pem"
    chain.cert_chain_pems[0].write_to_path(mine)
    trustme.CA().issue_cert("127.0.0.1").cert_chain_pems[0].write_to_path(other)
    with serving(chain) as port:
        endpoint = Endpoint("https", "127.0.0.1", port)
        assert (await endpoint_lines(endpoint, mine, is_served=True))[0].state == "ok"
        (line,) = await endpoint_lines(endpoint, other, is_served=True)
        assert line.state == "problem"
        assert "not to be trusted" in line.what
        # Its names count too, as they do for a client.
        assert (await ask(Endpoint("https", "localhost", port), mine)).is_untrusted
        assert (await ask(endpoint, tmp_path / "none.pem")).is_untrusted


def test_a_door_on_loopback_needs_no_word_about_firewalls(tmp_path: Path) -> None:
    assert firewall_lines(Address("127.0.0.1", 7777), tmp_path) == ()


def test_a_firewall_that_is_on_is_hinted_at_with_the_command_that_opens_it(tmp_path: Path) -> None:
    def put(name: str, text: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    (line,) = firewall_lines(EVERYWHERE, tmp_path)
    assert line.state == "ok"
    put("etc/nftables.conf", "table inet filter {\n chain input {\n policy\tdrop;\n }\n}\n")
    assert firewall_lines(EVERYWHERE, tmp_path)[0].state == "ok"  # it is not started with the machine
    put("etc/systemd/system/sysinit.target.wants/nftables.service", "")
    assert "tcp dport 7777 accept" in (firewall_lines(EVERYWHERE, tmp_path)[0].remedy or "")
    put("run/firewalld.pid", "1")
    assert "--add-port=7777/tcp" in (firewall_lines(EVERYWHERE, tmp_path)[0].remedy or "")
    put("etc/ufw/ufw.conf", "# yes\nENABLED=no\n")
    assert "ufw" not in (firewall_lines(EVERYWHERE, tmp_path)[0].remedy or "")
    put("etc/ufw/ufw.conf", "ENABLED=yes\nLOGLEVEL=low\n")
    (line,) = firewall_lines(EVERYWHERE, tmp_path)
    assert line.state == "warning"
    assert "sudo ufw allow 7777/tcp" in (line.remedy or "")
