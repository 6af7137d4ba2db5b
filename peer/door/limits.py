"""What the door's server allows a client, and the words in which it refuses.

Everything here is decided without I/O: the figures (:class:`Limits`), the check of a request's head
(:func:`check_head`), the count of connections (:class:`Gate`), and the error each refusal becomes
(:class:`Refusal`, the BEST error shape, conformance rule H01). ``peer.door.server`` acts on them.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import attrs
import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping

    import h11

_positive: Any = attrs.validators.gt(0)


@attrs.frozen(kw_only=True)
class Limits:
    """Every bound of the server. Seconds are seconds, sizes are bytes."""

    body_bytes: int = attrs.field(default=256 * 1024, validator=_positive)
    """The largest request body (F3). An app may lower it for one request:
    ``scope["state"]["body_limit_bytes"]``."""
    header_bytes: int = attrs.field(default=16 * 1024, validator=_positive)
    """The largest request head: request line and header fields together."""
    header_count: int = attrs.field(default=100, validator=_positive)
    """The most header fields one request may have."""
    target_bytes: int = attrs.field(default=8 * 1024, validator=_positive)
    """The longest request target: path and query."""
    handshake_seconds: float = attrs.field(default=5.0, validator=_positive)
    """How long a TLS handshake may take."""
    header_seconds: float = attrs.field(default=10.0, validator=_positive)
    """How long a head may take: from the connect for the first request, from its first byte for a later
    one."""
    body_seconds: float = attrs.field(default=30.0, validator=_positive)
    """How long a body may take, from the end of its head."""
    keep_alive_seconds: float = attrs.field(default=75.0, validator=_positive)
    """How long a connection may idle between two requests. Far above the 5 s after which httpx drops one, so
    that it is the client that lets go and no request meets a connection which is just being closed."""
    requests_per_connection: int = attrs.field(default=1000, validator=_positive)
    """After so many requests the answer says ``Connection: close``."""
    write_seconds: float = attrs.field(default=10.0, validator=_positive)
    """How long a client may take nothing of what is sent to it. Slow is fine, stalled is not: it is counted
    anew for each 64 KiB."""
    linger_seconds: float = attrs.field(default=2.0, validator=_positive)
    """How long what a client still sends is thrown away after an answer, so that it can read that answer:
    closing a socket that has unread bytes resets it, and a reset may destroy the answer on its way."""
    connections_per_address: int = attrs.field(default=256, validator=_positive)
    """The most connections of one address (IPv6: of one /64)."""
    connections_total: int = attrs.field(default=4096, validator=_positive)
    """The most connections of all addresses; never more than half of the descriptors this process may
    have."""
    count_loopback: bool = False
    """Whether ``connections_per_address`` holds for this machine itself too."""
    grace_seconds: float = attrs.field(default=3.0, validator=_positive)
    """How long requests in flight may go on after :meth:`Server.stop`."""


@attrs.frozen
class RequestRecord:
    """One request, as a log tells it (F35). Told once: when its answer begins, or when it is certain to get
    none."""

    client_host: str
    client_port: int
    method: str
    """``-`` where the request was refused before it could be read, or where it was none that is served."""
    path: str
    """As it arrived, percent signs and all, without the query; ``-`` as for the method, and where the target
    was no path."""
    status: int | None
    """None: the client left, or was cut off, before the answer."""
    seconds_to_headers: float
    """From the end of the request's head to the head of its answer, or to the client's leaving."""
    holder: str | None
    """Whose credential opened it, where the app put that into ``scope["state"]["holder"]``."""


@attrs.frozen
class ServerStatistics:
    """A snapshot of the counts of one server."""

    open: int
    """Connections open now, those being refused included."""
    accepted: int
    """Connections accepted since the start."""
    refused: int
    """Of those, turned away because there were too many."""
    failed_handshakes: int
    dropped_slow_readers: int
    """Connections cut because the client took nothing for ``write_seconds``."""
    crashed_connections: int
    """Connections ended by a fault of ours. Each is a line in the log and a bug."""


@attrs.frozen
class Refusal:
    """An answer of the server's own: status, BEST error body and nothing else."""

    status: int
    code: str
    message: str
    details: Mapping[str, Any] | None = None
    retry_after: int | None = None
    """Seconds, for the header of that name."""

    def body(self) -> bytes:
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.details is not None:
            error["details"] = self.details
        return orjson.dumps({"error": error})

    def headers(self, body: bytes) -> list[tuple[bytes, bytes]]:
        """The header fields to send with ``body``. Every refusal ends its connection: what follows it on the
        wire may be the rest of what was refused."""
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        if self.retry_after is not None:
            headers.append((b"retry-after", b"%d" % self.retry_after))
        return headers


INTERNAL = Refusal(
    500,
    "INTERNAL",
    "The peer failed to answer this request; its log says why. Send it again, or tell its owner.",
)

METHODS = frozenset((b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"))
_HOST = re.compile(rb"[A-Za-z0-9._~%!$&'()*+,;=:\[\]-]{1,300}")


def bad_request(message: str) -> Refusal:
    return Refusal(400, "BAD_REQUEST", message)


IN_THE_CLEAR = bad_request(
    "This door speaks https alone, and this request came in the clear. Send it to the same address with "
    "https://; a key that was in it may have been read on its way."
)


def body_too_large(limit: int) -> Refusal:
    return Refusal(
        413,
        "PAYLOAD_TOO_LARGE",
        f"The request body is larger than {limit} bytes. Send a smaller one.",
        {"limit_bytes": limit},
    )


def headers_too_large(limits: Limits) -> Refusal:
    return Refusal(
        431,
        "HEADERS_TOO_LARGE",
        f"The request's head is larger than {limits.header_bytes} bytes or has more than "
        f"{limits.header_count} header fields. Send fewer or shorter ones.",
        {"limit_bytes": limits.header_bytes, "limit_count": limits.header_count},
    )


def target_too_long(limits: Limits) -> Refusal:
    return Refusal(
        414,
        "TARGET_TOO_LONG",
        f"The request target is longer than {limits.target_bytes} bytes. Send a shorter path or query.",
        {"limit_bytes": limits.target_bytes},
    )


def too_slow(part: str, seconds: float) -> Refusal:
    return Refusal(
        408,
        "REQUEST_TIMEOUT",
        f"The request's {part} did not arrive within {seconds:g} seconds. Send it again, whole.",
        {"limit_seconds": seconds},
    )


def not_implemented(message: str) -> Refusal:
    return Refusal(501, "NOT_IMPLEMENTED", message)


def malformed(error: h11.RemoteProtocolError, head: bytes | None, limits: Limits) -> Refusal:
    """The refusal for a request that h11 could not read.

    ``head`` is what there is of an incomplete one, which tells a long request line from long header fields;
    None where it is the body that h11 could not read.
    """
    if error.error_status_hint == 431:
        if head is None:
            return bad_request(f"A line of the chunked body is longer than {limits.header_bytes} bytes.")
        line = head.find(b"\n")
        return (
            target_too_long(limits) if line < 0 or line > limits.target_bytes else headers_too_large(limits)
        )
    if error.error_status_hint == 501:
        return not_implemented("This transfer coding is not served. Send a Content-Length, or chunked, once.")
    # h11 quotes the offending line behind a colon, and that line may hold a credential: it stays unsaid.
    return bad_request(f"This is not a well-formed HTTP/1.1 request: {str(error).partition(':')[0]}.")


def check_head(request: h11.Request, limits: Limits) -> Refusal | None:
    """What is wrong with a head that h11 could read; None when it may go to the app.

    h11 holds its size limit only while a head is incomplete, so one that arrives in a single piece is
    measured here.
    """
    if len(request.target) > limits.target_bytes:
        return target_too_long(limits)
    size = len(request.method) + len(request.target)
    host = upgrade = transfer = length = None
    for name, value in request.headers:
        size += len(name) + len(value) + 4
        if name == b"host":
            host = value
        elif name == b"content-length":
            length = value
        elif name == b"transfer-encoding":
            transfer = value
        elif name == b"upgrade":
            upgrade = value
    if size > limits.header_bytes or len(request.headers) > limits.header_count:
        return headers_too_large(limits)
    if not request.http_version.startswith(b"1."):
        return Refusal(505, "HTTP_VERSION_NOT_SUPPORTED", "This door speaks HTTP/1.1 and HTTP/1.0 only.")
    if request.method not in METHODS:
        return not_implemented(
            "This method is not served. Methods are upper case, and CONNECT and TRACE have none."
        )
    if not request.target.startswith(b"/"):
        return bad_request(
            "The request target is not a path. Send one that begins with '/', and the host in Host."
        )
    # Python's own clients and browsers always send one; HTTP/1.0 had none.
    if not (_HOST.fullmatch(host) if host is not None else request.http_version == b"1.0"):
        return bad_request("The Host header is not a host name or address.")
    if upgrade is not None and b"websocket" in upgrade.lower():
        return not_implemented(
            "Websockets are not served. Events come as server-sent events over a plain GET."
        )
    if transfer is not None and (length is not None or request.http_version == b"1.0"):
        # Two framings, or one that the version does not have: a proxy before us may have chosen the other.
        return bad_request(
            "Transfer-Encoding goes with neither Content-Length nor HTTP/1.0. Send one framing."
        )
    if length is not None and int(length) > limits.body_bytes:
        return body_too_large(limits.body_bytes)
    return None


def plain_address(host: str) -> str:
    """The address as its owner writes it: without the IPv6 dress of an IPv4 client on a socket for both."""
    return host[7:] if host.startswith("::ffff:") and "." in host else host


def address_key(host: str) -> str | None:
    """Who counts as one client: an IPv4 address, an IPv6 /64. None for this machine itself.

    An address that cannot be read counts as ``unknown``, all of them together.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return None if address.is_loopback else str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
        address = address.ipv4_mapped
    return None if address.is_loopback else str(address)


class Gate:
    """Counts open connections, in all and by address."""

    def __init__(self, limits: Limits, *, total: int) -> None:
        self._per_address = limits.connections_per_address
        self._count_loopback = limits.count_loopback
        self._total = total
        self._counts: Counter[str] = Counter()
        self._inside = 0

    def enter(self, host: str) -> Refusal | None:
        """Count a connection in, or say why not. One that got in must :meth:`leave`."""
        key = self._key(host)
        if self._inside >= self._total:
            limit, whose = self._total, "in all"
        elif key is not None and self._counts[key] >= self._per_address:
            limit, whose = self._per_address, "from this address"
        else:
            self._inside += 1
            if key is not None:
                self._counts[key] += 1
            return None
        return Refusal(
            503,
            "TOO_MANY_CONNECTIONS",
            f"There are {limit} connections {whose} already, the most this door keeps. Close some, or wait.",
            {"limit": limit},
            retry_after=5,
        )

    def leave(self, host: str) -> None:
        self._inside -= 1
        key = self._key(host)
        if key is not None:
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key]  # or every address ever seen would stay

    def _key(self, host: str) -> str | None:
        key = address_key(host)
        return "loopback" if key is None and self._count_loopback else key
