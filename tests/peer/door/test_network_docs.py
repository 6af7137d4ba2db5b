"""The page on the network says what the door does."""

from __future__ import annotations

from pathlib import Path

import actors.codes
import peer.door.public
from peer.certificates import LOOK_SECONDS, WARN_WITHIN
from peer.door.limits import Limits

PAGE = Path(__file__).parents[3] / "docs" / "network.md"


def test_every_ceiling_on_the_page_is_the_doors() -> None:
    limits = Limits()
    rows = {
        cells[1].strip().split(" (")[0].split(";")[0]: cells[2].strip()
        for line in PAGE.read_text().splitlines()
        if line.startswith("| ") and len(cells := line.split("|")) == 5
    }
    kib = 1024
    expected = {
        "connections from one address": f"{limits.connections_per_address}",
        "connections in all": f"{limits.connections_total}",
        "a TLS handshake": f"{limits.handshake_seconds:g} s",
        "a request's head": (
            f"{limits.header_bytes // kib} KiB, {limits.header_count} fields, {limits.header_seconds:g} s"
        ),
        "its path and query": f"{limits.target_bytes // kib} KiB",
        "its body": f"{limits.body_bytes // kib} KiB, {limits.body_seconds:g} s",
        "a connection between two requests": (
            f"{limits.keep_alive_seconds:g} s, {limits.requests_per_connection} requests"
        ),
        "a client that takes nothing of its answer": f"{limits.write_seconds:g} s",
        "requests that need no key, from one address": f"{peer.door.public.PER_MINUTE} a minute",
        "sign-ins that wait for approval": (
            f"{actors.codes.PER_CLIENT} from one client, {actors.codes.PER_ADDRESS} from one address, "
            f"{actors.codes.IN_ALL} in all"
        ),
        "this machine's own sign-ins that wait": f"{actors.codes.FROM_LOOPBACK}",
    }
    assert {name: rows.get(name) for name in expected} == expected


def test_how_often_files_are_looked_at_and_how_early_their_end_is_warned_of() -> None:
    text = " ".join(PAGE.read_text().split())
    assert LOOK_SECONDS == 5
    assert "looked at every five seconds" in text
    assert WARN_WITHIN.days == 14
    assert "From fourteen days before its end" in text
