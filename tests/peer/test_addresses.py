"""Listen addresses and endpoints: what is read, what is refused, and what counts as loopback (F33, F34)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peer.addresses import (
    Address,
    AddressError,
    Endpoint,
    is_loopback,
    parse_endpoint,
    parse_host,
    parse_listen,
)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:7777", Address("127.0.0.1", 7777)),
        ("0.0.0.0:0", Address("0.0.0.0", 0)),
        ("[::1]:7777", Address("::1", 7777)),
        ("[0:0:0:0:0:0:0:1]:1", Address("::1", 1)),
        ("[fe80::1%eth0]:7777", Address("fe80::1%eth0", 7777)),
        ("GPU-host.Example:65535", Address("gpu-host.example", 65535)),
    ],
)
def test_listen_addresses_are_read(text: str, address: Address) -> None:
    assert parse_listen(text) == address
    assert parse_listen(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "", "7777", ":7777", "127.0.0.1", "::1:7777", "[::1]", "[127.0.0.1]:1", "host:", "host:-1", "*:7777",
        "host:65536", "host:٧", "ho st:1", "http://host:1", "-host:1", "host..x:1", "[fe80::1%e\n0]:7777",
        "0:7777", "127.1:7777", "0x7f:1",
    ],
)  # fmt: skip
def test_what_is_no_listen_address_is_refused(text: str) -> None:
    with pytest.raises(AddressError, match="expected"):
        parse_listen(text)


@pytest.mark.parametrize(
    ("text", "endpoint", "written"),
    [
        ("http://127.0.0.1:7777", Endpoint("http", "127.0.0.1", 7777), "http://127.0.0.1:7777"),
        ("https://Peer.Example/", Endpoint("https", "peer.example", 443), "https://peer.example"),
        ("https://peer.example:443", Endpoint("https", "peer.example", 443), "https://peer.example"),
        ("http://peer.example:443", Endpoint("http", "peer.example", 443), "http://peer.example:443"),
        ("https://[2001:DB8::1]:7777", Endpoint("https", "2001:db8::1", 7777), "https://[2001:db8::1]:7777"),
        ("https://host/peers/a//", Endpoint("https", "host", 443, "/peers/a"), "https://host/peers/a"),
    ],
)
def test_endpoints_are_read_and_written_without_a_slash_at_the_end(
    text: str, endpoint: Endpoint, written: str
) -> None:
    assert parse_endpoint(text) == endpoint
    assert str(endpoint) == written
    assert parse_endpoint(written) == endpoint


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("peer.example", "http:// or https://"),
        ("ftp://peer.example", "http:// or https://"),
        ("https://", "http:// or https://"),
        ("https://[::1", "http:// or https://"),
        ("https://peer.example:x", "http:// or https://"),
        ("https://peer.example?x=1", "no query"),
        ("https://peer.example?", "no query"),
        ("https://peer.example/#", "no fragment"),
        ("https://me:secret@peer.example", "no user name"),
        ("https://peer.example:", "a port, or none"),
        ("https://peer.example/a/../b", "plain path"),
        ("https://peer.example/a%2fb", "plain path"),
        ("https://peer.example//a", "plain path"),
        ("https://pèer.example", "xn--"),
        ("https://peer.exam\nple", "xn--"),
        ("https://127.1", "IP address or a host name"),
        ("https://[fe80::1%25eth0]", "interface"),
        ("https://0.0.0.0:7777", "not every interface"),
        ("https://" + "a" * 600, "at most 512"),
    ],
)
def test_what_is_no_endpoint_is_refused_naming_what_is_off(text: str, reason: str) -> None:
    with pytest.raises(AddressError, match=reason):
        parse_endpoint(text)


@settings(deadline=None)
@given(st.text(max_size=60) | st.text(max_size=40).map("https://".__add__))
def test_any_text_is_read_or_refused_and_what_is_read_is_written_the_same(text: str) -> None:
    for parse in (parse_endpoint, parse_listen, parse_host):
        try:
            value = parse(text)
        except AddressError:
            continue
        assert parse(str(value)) == value


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "LOCALHOST"])
def test_loopback_is_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.5", "10.0.0.1", "localhost.example", "peer", "::ffff:8.8.8.8"]
)
def test_what_is_not_shown_to_be_loopback_is_not(host: str) -> None:
    assert not is_loopback(host)


def test_every_interface_is_told_apart_in_both_families() -> None:
    every = [Address(host, 1) for host in ("0.0.0.0", "::", "::ffff:0.0.0.0")]
    assert all(address.is_every_interface for address in every)
    assert not any(address.is_loopback for address in every)
    assert not Address("127.0.0.1", 1).is_every_interface
    assert not Address("peer.example", 1).is_every_interface


def test_an_endpoint_takes_the_bound_port_only_where_its_own_was_left_open() -> None:
    assert str(Endpoint("http", "127.0.0.1", 0).at_port(40123)) == "http://127.0.0.1:40123"
    assert str(Endpoint("https", "peer.example", 443).at_port(7777)) == "https://peer.example"


def test_port_0_of_an_endpoint_stands_for_the_port_that_the_door_gets() -> None:
    assert str(parse_endpoint("https://127.0.0.1:0").at_port(40123)) == "https://127.0.0.1:40123"
