"""The peer's own certificate: when it is made, kept, made again, and that clients can pin it (F34)."""

from __future__ import annotations

import ssl
import stat
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio
from cryptography import x509

from adapters.certificates import CertificateState, ensure_certificate

NOW = datetime(2026, 10, 19, 12, tzinfo=UTC)
HOST = "peer.example"


def ensure(
    folder: Path, host: str = HOST, now: datetime = NOW, extra: tuple[str, ...] = ()
) -> CertificateState:
    return ensure_certificate(folder, host, extra, now)


def names(state: CertificateState) -> list[str]:
    certificate = x509.load_pem_x509_certificate(state.cert_path.read_bytes())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in found]


def server_side(state: CertificateState) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(state.cert_path, state.key_path)
    return context


def handshake(state: CertificateState, trusted: Path, hostname: str) -> None:
    """A whole TLS handshake in memory, by a client that trusts ``trusted`` alone and checks strictly."""
    client_context = ssl.create_default_context(cafile=trusted)
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=hostname)
    server = server_side(state).wrap_bio(to_server, to_client, server_side=True)
    done = {client: False, server: False}
    for _ in range(10):
        for side in done:
            try:
                side.do_handshake()
                done[side] = True
            except ssl.SSLWantReadError:
                continue
    assert all(done.values())


def test_the_first_start_makes_one_with_a_private_key(tmp_path: Path) -> None:
    state = ensure(tmp_path / "tls")
    assert state.made
    assert state.reason == "there was none yet"
    assert state.not_after == NOW + timedelta(days=397)
    assert stat.S_IMODE(state.key_path.stat().st_mode) == 0o600
    assert (state.cert_path, state.key_path) == (tmp_path / "tls/cert.pem", tmp_path / "tls/key.pem")


def test_it_is_kept_across_restarts_and_changes_of_network(tmp_path: Path) -> None:
    """Easily missed 30."""
    first = ensure(tmp_path, extra=("192.168.1.5",))
    before = first.cert_path.read_bytes(), first.key_path.read_bytes()
    again = ensure(tmp_path, extra=("10.0.0.7",), now=NOW + timedelta(days=367))
    assert (again.made, again.reason, again.not_after) == (False, None, first.not_after)
    assert (again.cert_path.read_bytes(), again.key_path.read_bytes()) == before


def test_it_is_made_again_when_fewer_than_thirty_days_remain(tmp_path: Path) -> None:
    """Easily missed 10."""
    first = ensure(tmp_path)
    assert not ensure(tmp_path, now=first.not_after - timedelta(days=30)).made
    late = first.not_after - timedelta(days=30) + timedelta(seconds=1)
    again = ensure(tmp_path, now=late)
    assert again.reason == "it ends on 2027-11-20, fewer than thirty days from now"
    assert again.not_after == late + timedelta(days=397)


@pytest.mark.parametrize("host", ["other.example", "localhost", "127.0.0.1", "2001:db8::1"])
def test_it_is_made_again_when_the_endpoints_host_changes(tmp_path: Path, host: str) -> None:
    """Easily missed 10; also to a host that the old one named besides its own."""
    ensure(tmp_path)
    again = ensure(tmp_path, host=host)
    assert again.reason == f"the endpoint's host changed from peer.example to {host}"
    assert not ensure(tmp_path, host=host).made


def test_another_spelling_of_the_host_is_the_same_host(tmp_path: Path) -> None:
    ensure(tmp_path)
    assert not ensure(tmp_path, host="Peer.Example.").made


def test_a_clock_set_back_before_its_beginning_makes_it_again(tmp_path: Path) -> None:
    ensure(tmp_path)
    assert not ensure(tmp_path, now=NOW - timedelta(hours=23)).made
    assert "clock was set back" in str(ensure(tmp_path, now=NOW - timedelta(days=2)).reason)


@pytest.mark.parametrize("name", ["cert.pem", "key.pem"])
@pytest.mark.parametrize(
    "text", [b"", b"\x00\xff", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
def test_damaged_files_are_replaced_and_the_reason_told(tmp_path: Path, name: str, text: bytes) -> None:
    ensure(tmp_path)
    (tmp_path / name).write_bytes(text)
    again = ensure(tmp_path)
    assert again.reason == "its files were damaged"
    server_side(again)


@pytest.mark.parametrize("name", ["cert.pem", "key.pem"])
def test_half_a_pair_is_replaced(tmp_path: Path, name: str) -> None:
    ensure(tmp_path)
    (tmp_path / name).unlink()
    again = ensure(tmp_path)
    assert str(again.reason).endswith(f"{name} was missing")
    server_side(again)


def test_a_pair_that_does_not_match_is_replaced(tmp_path: Path) -> None:
    ensure(tmp_path / "a")
    other = ensure(tmp_path / "b")
    (tmp_path / "a" / "key.pem").write_bytes(other.key_path.read_bytes())
    again = ensure(tmp_path / "a")
    assert again.reason == "its key did not belong to it"
    server_side(again)


def test_a_key_that_others_may_have_read_is_replaced(tmp_path: Path) -> None:
    first = ensure(tmp_path)
    first.key_path.chmod(0o644)
    again = ensure(tmp_path)
    assert "may be read by others" in str(again.reason)
    assert stat.S_IMODE(again.key_path.stat().st_mode) == 0o600


def test_a_certificate_opened_to_others_to_hand_it_out_is_kept(tmp_path: Path) -> None:
    ensure(tmp_path).cert_path.chmod(0o644)
    assert not ensure(tmp_path).made


def test_it_names_the_host_first_then_this_machine_and_what_is_bound(tmp_path: Path) -> None:
    extra = ("192.168.1.5", "0.0.0.0", "::", "fe80::1%eth0", "LAN.example", "localhost")
    state = ensure(tmp_path, extra=extra)
    assert names(state) == [
        "peer.example", "localhost", "127.0.0.1", "::1", "192.168.1.5", "fe80::1", "lan.example"
    ]  # fmt: skip


@pytest.mark.parametrize("hostname", [HOST, "localhost", "127.0.0.1", "::1", "192.168.1.5"])
def test_a_client_that_pins_the_file_reaches_every_name(tmp_path: Path, hostname: str) -> None:
    state = ensure(tmp_path, now=datetime.now(UTC), extra=("192.168.1.5",))
    handshake(state, state.cert_path, hostname)


def test_a_client_refuses_a_name_it_does_not_bear_and_a_pin_of_another_peer(tmp_path: Path) -> None:
    state = ensure(tmp_path / "a", now=datetime.now(UTC))
    other = ensure(tmp_path / "b", now=datetime.now(UTC))
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(state, state.cert_path, "elsewhere.example")
    with pytest.raises(ssl.SSLCertVerificationError, match="self-signed"):
        handshake(state, other.cert_path, HOST)


def test_a_client_that_pins_two_peers_reaches_both(tmp_path: Path) -> None:
    a = ensure(tmp_path / "a", now=datetime.now(UTC))
    b = ensure(tmp_path / "b", now=datetime.now(UTC))
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(a.cert_path.read_bytes() + b.cert_path.read_bytes())
    handshake(a, bundle, HOST)
    handshake(b, bundle, HOST)


@pytest.mark.parametrize("url_host", ["localhost", "127.0.0.1"])
async def test_a_python_client_reaches_it_through_ssl_cert_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url_host: str
) -> None:
    state = ensure(tmp_path, now=datetime.now(UTC))

    async def answer(stream: trio.SSLStream[trio.SocketStream]) -> None:
        with trio.fail_after(20):
            await stream.receive_some(65536)
            await stream.send_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")

    async with trio.open_nursery() as nursery:
        [listener] = await nursery.start(
            partial(trio.serve_ssl_over_tcp, answer, 0, server_side(state), host="127.0.0.1")
        )
        port = listener.transport_listener.socket.getsockname()[1]
        monkeypatch.setenv("SSL_CERT_FILE", str(state.cert_path))
        with trio.fail_after(20):
            async with httpx.AsyncClient() as client:
                response = await client.get(f"https://{url_host}:{port}/")
        assert response.status_code == 204
        nursery.cancel_scope.cancel()
