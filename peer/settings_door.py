"""The settings of the door: where it listens, under which name, where it keeps what is its own (F33, F34)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import attrs

from peer.addresses import (
    ENDPOINT_EXPECTED,
    LISTEN_EXPECTED,
    Address,
    Endpoint,
    parse_endpoint,
    parse_listen,
)
from peer.setting import entry, one_of, path_text


@attrs.frozen(kw_only=True, slots=False)
class DoorSettings:
    """Where the door is, and its folder."""

    listen: Address = attrs.field(
        metadata=entry(
            name="BEST_PEER_LISTEN",
            default="127.0.0.1:7777",
            parse=parse_listen,
            takes=LISTEN_EXPECTED,
            help="Where the door listens; port 0 lets the system choose one.",
        )
    )
    endpoint: Endpoint = attrs.field(
        metadata=entry(
            name="BEST_PEER_ENDPOINT",
            otherwise="http:// and the listen address",
            parse=parse_endpoint,
            takes=ENDPOINT_EXPECTED,
            help="The base URL that consumers are told; to be set when the door listens on every "
            "interface. Its port may be 0 for the one the door gets.",
        )
    )
    cleartext: Literal["vpn"] | None = attrs.field(
        metadata=entry(
            name="BEST_PEER_CLEARTEXT",
            otherwise="http:// on loopback alone",
            parse=one_of("vpn"),
            takes="vpn",
            help="Serves http:// off loopback, where a VPN encrypts every hop to and from it.",
        )
    )
    tls_cert: Path | None = attrs.field(
        metadata=entry(
            name="BEST_PEER_TLS_CERT",
            otherwise="a certificate that the peer makes",
            parse=path_text,
            takes="a PEM file",
            help="The certificate chain of your own for an https:// endpoint; goes with BEST_PEER_TLS_KEY.",
        )
    )
    tls_key: Path | None = attrs.field(
        metadata=entry(
            name="BEST_PEER_TLS_KEY",
            otherwise="the key of the certificate that the peer makes",
            parse=path_text,
            takes="a PEM file, not encrypted",
            help="The private key of BEST_PEER_TLS_CERT.",
        )
    )
    data: Path = attrs.field(
        metadata=entry(
            name="BEST_PEER_DATA",
            default="~/.best-peer",
            parse=path_text,
            takes="a folder",
            help="Where the event log, the keys as hashes, the admin token and the certificate are kept.",
        )
    )
