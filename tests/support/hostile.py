"""Requests that no decent client sends, as data: what goes over the wire, and which statuses come back.

A step is bytes to send or a `Move`. `statuses` are those of the final answers, in order; where more may come,
the client leaves after these. None: what comes depends on what the system delivered first, so only the
server's health is looked at.
"""

from __future__ import annotations

from contextlib import suppress
from enum import Enum, auto
from typing import TYPE_CHECKING

import attrs
import trio

if TYPE_CHECKING:
    from tests.support.rawhttp import Wire

LEFT = (trio.BrokenResourceError, trio.ClosedResourceError)
"""What a wire raises whose other end has gone."""


class Move(Enum):
    """What a client does besides sending."""

    HALF_CLOSE = auto()
    RESET = auto()
    CLOSE = auto()
    READ = auto()
    """Wait for the next bytes from the server."""


@attrs.frozen
class Drip:
    """Bytes sent one by one."""

    data: bytes


Step = bytes | Move | Drip


@attrs.frozen
class Case:
    name: str
    steps: tuple[Step, ...]
    statuses: tuple[int, ...] | None

    @property
    def data(self) -> bytes:
        """All its bytes: what the mutator starts from."""
        return b"".join(s.data if isinstance(s, Drip) else s for s in self.steps if not isinstance(s, Move))


async def play(wire: Wire, steps: tuple[Step, ...]) -> bytes:
    """Take the steps as far as the server lets; returns what was read on the way."""
    read = b""
    for step in steps:
        if isinstance(step, bytes):
            await wire.try_send(step)
        elif isinstance(step, Drip):
            for byte in step.data:
                await wire.try_send(bytes([byte]))
        elif step is Move.READ:
            read += await wire.receive()
        elif step is Move.HALF_CLOSE:
            with suppress(*LEFT):
                await wire.half_close()
        elif step is Move.RESET:
            wire.reset()
        else:
            wire.close()
    return read


HOST = b"Host: door\r\n"
END = b"\r\n"


def get(target: bytes = b"/", *lines: bytes, method: bytes = b"GET", version: bytes = b"HTTP/1.1") -> bytes:
    fields = b"".join(line + END for line in lines)
    return method + b" " + target + b" " + version + END + HOST + fields + END


def post(body: bytes, *lines: bytes, target: bytes = b"/") -> bytes:
    """A POST whose framing stands in `lines`."""
    return get(target, *lines, method=b"POST") + body


def chunked(body: bytes, *lines: bytes, target: bytes = b"/") -> bytes:
    return post(body, b"Transfer-Encoding: chunked", *lines, target=target)


def case(name: str, *steps: Step, to: tuple[int, ...] | int | None) -> Case:
    return Case(name, steps, (to,) if isinstance(to, int) else to)


GOOD = get()
WHOLE = b"5\r\nhello\r\n0\r\n\r\n"
WEBSOCKET = (
    b"Connection: Upgrade",
    b"Upgrade: websocket",
    b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)
H2C = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQAAP__")
CONTINUE = b"Expect: 100-continue"
H2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
H2_SETTINGS = bytes(3) + b"\x04" + bytes(5)
HELLO = bytes.fromhex(
    "16030100a5010000a10303" + "00" * 32 + "20" + "11" * 32 + "0008130113021303c02f0100005000"
) + bytes(79)

CASES: tuple[Case, ...] = (
    # Other protocols
    case("h2 preface alone", H2_PREFACE, to=505),
    case("h2 preface and settings", H2_PREFACE + H2_SETTINGS, to=505),
    case("h2 preface and frames", H2_PREFACE + H2_SETTINGS * 200, to=505),
    case("h2 frames without preface", H2_SETTINGS * 4, to=400),
    case("half an h2 preface", H2_PREFACE[:12], Move.CLOSE, to=()),
    case("h2c upgrade", get(b"/", *H2C), to=200),
    case("h2c upgrade, then h2", get(b"/", *H2C) + H2_PREFACE + H2_SETTINGS, to=(200, 505)),
    case("h2c upgrade with a body", post(b"abc", *H2C, b"Content-Length: 3"), to=200),
    case("h2c upgrade, twice", get(b"/", *H2C) * 2, to=(200, 200)),
    case("websocket", get(b"/", *WEBSOCKET), to=501),
    case("websocket, then junk", get(b"/", *WEBSOCKET) + b"\xff" * 300, to=501),
    case("websocket, junk later", get(b"/", *WEBSOCKET), Move.READ, b"\x81\xfe" + b"\xff" * 70_000, to=501),
    case("websocket, then a reset", get(b"/", *WEBSOCKET), Move.RESET, to=None),
    case("websocket by POST", post(b"", *WEBSOCKET, b"Content-Length: 0"), to=501),
    case("websocket of no version", get(b"/", b"Connection: upgrade", b"Upgrade: WebSocket"), to=501),
    case("upgrade to something", get(b"/", b"Connection: Upgrade", b"Upgrade: irc/6.9"), to=200),
    case("upgrade to something, pipelined", get(b"/", b"Upgrade: foo/2") + GOOD, to=(200, 200)),
    case("TLS to whoever is there", HELLO, to=400),
    case("SSH", b"SSH-2.0-OpenSSH_9.6\r\n\r\n", to=400),
    case("SMTP", b"EHLO door\r\n\r\n", to=400),
    case("a proxy line", b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n" + GOOD, to=400),
    case("CONNECT", get(b"door:443", method=b"CONNECT"), to=501),
    case("CONNECT, then a tunnel", get(b"door:443", method=b"CONNECT") + b"\x16\x03\x01" * 30, to=501),
    # Request lines
    case("TRACE", get(method=b"TRACE"), to=501),
    case("lower-case method", get(method=b"get"), to=501),
    case("unknown method", get(method=b"BREW"), to=501),
    case("method of punctuation", get(method=b"!#$%&'*+.^_`|~"), to=501),
    case("method of 8,000 letters", get(method=b"G" * 8000), to=501),
    case("non-ASCII method", get(method="GÉT".encode()), to=400),
    case("no method", b" / HTTP/1.1\r\n" + HOST + END, to=400),
    case("PRI by HTTP/1.1", get(b"*", method=b"PRI"), to=501),
    case("HTTP/0.9", b"GET /\r\n\r\n", to=400),
    case("HTTP/0.9, written out", get(version=b"HTTP/0.9"), to=505),
    case("HTTP/1.0", b"GET / HTTP/1.0\r\n\r\n", to=200),
    case("HTTP/1.0 that would keep alive", get(b"/", b"Connection: keep-alive", version=b"HTTP/1.0"), to=200),
    case("HTTP/1.0, pipelined", get(version=b"HTTP/1.0") * 2, to=200),
    case("HTTP/1.2", get(version=b"HTTP/1.2"), to=200),
    case("HTTP/2.0", get(version=b"HTTP/2.0"), to=505),
    case("HTTP/11.1", get(version=b"HTTP/11.1"), to=400),
    case("HTTP/1", get(version=b"HTTP/1"), to=400),
    case("http/1.1", get(version=b"http/1.1"), to=400),
    case("HTTPS/1.1", get(version=b"HTTPS/1.1"), to=400),
    case("no version", get(version=b""), to=400),
    case("two spaces", b"GET  / HTTP/1.1\r\n" + HOST + END, to=400),
    case("tabs for spaces", b"GET\t/\tHTTP/1.1\r\n" + HOST + END, to=400),
    case("a space in the target", get(b"/a b"), to=400),
    case("leading blank line", END + GOOD, to=400),
    case("only blank lines", END * 50, to=400),
    case("only NULs", bytes(500), to=400),
    case("bare CR", b"GET / HTTP/1.1\r" + HOST.replace(b"\n", b"") + b"\r\r\n\r\n", to=400),
    case("bare LF everywhere", b"GET / HTTP/1.1\nHost: door\n\n", to=200),
    case("nothing", Move.CLOSE, to=()),
    case("nothing but a half close", Move.HALF_CLOSE, to=()),
    # Targets
    case("20 KB target at once", get(b"/" + b"a" * 20_000), to=414),
    case("20 KB query", get(b"/?" + b"a=1&" * 5000), to=414),
    case("20 KB target that does not end", b"GET /" + b"a" * 20_000, to=414),
    case("absolute form", get(b"http://door/"), to=400),
    case("absolute form elsewhere", get(b"http://169.254.169.254/latest"), to=400),
    case("authority form", get(b"door:80"), to=400),
    case("asterisk form", get(b"*", method=b"OPTIONS"), to=400),
    case("OPTIONS", get(method=b"OPTIONS"), to=200),
    case("traversal", get(b"/../../etc/passwd"), to=404),
    case("percent-encoded traversal", get(b"/%2e%2e/%2e%2e%2fetc%2fpasswd"), to=404),
    case("percent-encoded NUL", get(b"/%00"), to=404),
    case("percent-encoded CRLF", get(b"/%0d%0aX: y"), to=400),
    case("percent-encoded line break", get(b"/%0d%0aX:y"), to=404),
    case("broken percent signs", get(b"/%%%zz%1"), to=404),
    case("percent-encoded bad UTF-8", get(b"/%ff%fe%c0%af"), to=404),
    case("non-ASCII target", get("/é".encode()), to=400),
    case("two slashes", get(b"//evil.example/"), to=404),
    case("backslashes", get(b"/\\..\\..\\"), to=404),
    case("fragment", get(b"/#part"), to=404),
    case("query of junk", get(b"/?%ff&==&&?;%00"), to=200),
    # Header fields
    case("huge header at once", get(b"/", b"X: " + b"a" * 60_000), to=431),
    case("huge header, no end", b"GET / HTTP/1.1\r\nX: " + b"a" * 60_000, to=431),
    case("huge header name", get(b"/", b"X" * 20_000 + b": a"), to=431),
    case("2,000 headers", get(b"/", *[b"X-%d: a" % n for n in range(2000)]), to=431),
    case("101 headers", get(b"/", *[b"A: b"] * 100), to=431),
    case("header drip", Drip(b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20), to=408),
    case("half a head", GOOD[:-2], to=408),
    case("half a head, half closed", GOOD[:-2], Move.HALF_CLOSE, to=()),
    case("no Host", b"GET / HTTP/1.1\r\n\r\n", to=400),
    case("two Hosts", get(b"/", b"Host: other"), to=400),
    case("empty Host", b"GET / HTTP/1.1\r\nHost:\r\n\r\n", to=400),
    case("Host with a path", b"GET / HTTP/1.1\r\nHost: door/x\r\n\r\n", to=400),
    case("Host with a user", b"GET / HTTP/1.1\r\nHost: a@door\r\n\r\n", to=400),
    case("Host not ASCII", "GET / HTTP/1.1\r\nHost: dóór\r\n\r\n".encode(), to=400),
    case("Host of IPv6", b"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", to=200),
    case("space before the colon", get(b"/", b"X-A : b"), to=400),
    case("no colon", get(b"/", b"X-A"), to=400),
    case("no name", get(b"/", b": b"), to=400),
    case("NUL in a value", get(b"/", b"X-A: a\0b"), to=400),
    case("NUL in a name", get(b"/", b"X\0A: b"), to=400),
    case("CR in a value", get(b"/", b"X-A: a\rX-B: b"), to=400),
    case("control characters in a value", get(b"/", b"X-A: \x01\x02\x7f"), to=200),
    case("non-ASCII name", get(b"/", "Xé: b".encode()), to=400),
    case("non-ASCII value", get(b"/", b"X-A: \xff\xfe\x80"), to=200),
    case("folded line", get(b"/", b"X-A: a", b" b"), to=200),
    case("folded first line", b"GET / HTTP/1.1\r\n X: y\r\n" + HOST + END, to=400),
    case("folded Content-Length", post(b"abc", b"Content-Length:", b" 3"), to=200),
    case("odd connection tokens", get(b"/", b"Connection: ,,close,,x, \t"), to=200),
    case(
        "junk in known headers", get(b"/", b"Cookie: \xff=;;=", b"Range: bytes=9-1", b"Accept: ;;q=x"), to=200
    ),
    case("junk in dates and types", get(b"/", b"If-Modified-Since: never", b"Content-Type: /;;="), to=200),
    case("forwarded headers of lies", get(b"/", b"X-Forwarded-For: a", b"Forwarded: for=_"), to=200),
    # Framing
    case("CL and TE", chunked(WHOLE, b"Content-Length: 5"), to=400),
    case("TE and CL hiding a request", chunked(b"0\r\n\r\n" + GOOD, b"Content-Length: 500"), to=400),
    case("two lengths", post(b"abc", b"Content-Length: 3", b"Content-Length: 4"), to=400),
    case("a length twice", post(b"abc", b"Content-Length: 3", b"Content-Length: 3"), to=200),
    case("lengths in one field", post(b"abc", b"Content-Length: 3, 4"), to=400),
    case("negative length", post(b"abc", b"Content-Length: -3"), to=400),
    case("signed length", post(b"abc", b"Content-Length: +3"), to=400),
    case("hex length", post(b"abc", b"Content-Length: 0x3"), to=400),
    case("length of other digits", post(b"abc", "Content-Length: ３".encode()), to=400),
    case("empty length", post(b"abc", b"Content-Length:"), to=400),
    case("length of 300 digits", post(b"abc", b"Content-Length: " + b"9" * 300), to=400),
    case("length of 19 digits", post(b"abc", b"Content-Length: " + b"9" * 19), to=413),
    case("TE twice", chunked(WHOLE, b"Transfer-Encoding: chunked"), to=501),
    case("TE of a list", post(WHOLE, b"Transfer-Encoding: gzip, chunked"), to=501),
    case("TE in capitals", post(WHOLE, b"Transfer-Encoding: CHUNKED"), to=200),
    case("TE with a tail", post(WHOLE, b"Transfer-Encoding: chunked;q=1"), to=501),
    case("TE with a vertical tab", post(WHOLE, b"Transfer-Encoding: \x0bchunked"), to=400),
    case("TE identity", post(WHOLE, b"Transfer-Encoding: identity"), to=501),
    case("TE hidden by a space", post(WHOLE, b"Transfer-Encoding : chunked"), to=400),
    case("TE by HTTP/1.0", b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + WHOLE, to=400),
    case("GET with a body", get(b"/", b"Content-Length: 3") + b"abc" + GOOD, to=(200, 200)),
    case("body longer than its length", post(b"abcGET", b"Content-Length: 3"), to=(200, 408)),
    case("body shorter than its length", post(b"ab", b"Content-Length: 3"), to=408),
    case("body cut off", post(b"ab", b"Content-Length: 3"), Move.CLOSE, to=()),
    case("body half closed", post(b"ab", b"Content-Length: 3"), Move.HALF_CLOSE, to=None),
    case("body in drips", post(b"", b"Content-Length: 9"), Drip(b"slow slow"), to=200),
    case("POST without framing", post(b""), to=200),
    case("POST without framing, with a body", post(b"abc"), to=(200, 408)),
    case("body over the limit", post(b"x" * 300_000, b"Content-Length: 300000"), to=413),
    # Chunks
    case("chunked", chunked(WHOLE), to=200),
    case("chunks in drips", chunked(b""), Drip(WHOLE), to=200),
    case("huge chunk size", chunked(b"FFFFFFFFFFFFFFFFFFFF\r\n" + b"a" * 100), to=408),
    case("chunk size of 21 digits", chunked(b"F" * 21 + END), to=400),
    case("negative chunk size", chunked(b"-1\r\na\r\n0\r\n\r\n"), to=400),
    case("chunk size 0x5", chunked(b"0x5\r\nhello\r\n0\r\n\r\n"), to=400),
    case("chunk size with an underscore", chunked(b"1_0\r\n"), to=400),
    case("no chunk size", chunked(END * 3), to=400),
    case("chunk extension", chunked(b'5;a="b;c"\r\nhello\r\n0;x\r\n\r\n'), to=200),
    case("bad chunk extension", chunked(b"5 a\r\nhello\r\n0\r\n\r\n"), to=400),
    case("NUL chunk extension", chunked(b"5;\0\xff\r\nhello\r\n0\r\n\r\n"), to=200),
    case("endless chunk extension", chunked(b"5;" + b"a" * 40_000), to=400),
    case("chunk longer than its size", chunked(b"2\r\nhello\r\n0\r\n\r\n"), to=400),
    case("chunk shorter than its size", chunked(b"9\r\nhello\r\n0\r\n\r\n"), to=400),
    case("chunk that never comes", chunked(b"99\r\nhello\r\n0\r\n\r\n"), to=408),
    case("chunk lines ended by LF", chunked(b"5\nhello\n0\n\n"), to=408),
    case("no last chunk", chunked(b"5\r\nhello\r\n"), to=408),
    case("half a last chunk", chunked(b"5\r\nhello\r\n0\r\n"), Move.CLOSE, to=()),
    case("trailers", chunked(b"0\r\nX-T: 1\r\n\r\n" + GOOD), to=(200, 200)),
    case("trailer that frames", chunked(b"0\r\nContent-Length: 9\r\n\r\n"), to=200),
    case("bad trailer", chunked(b"0\r\nnonsense\r\n\r\n"), to=400),
    case("trailer flood", chunked(b"0\r\n" + b"X-T: 1\r\n" * 4000), to=None),
    case("10,000 chunks of one byte", chunked(b"1\r\na\r\n" * 10_000 + b"0\r\n\r\n"), to=200),
    case(
        "chunked over the limit",
        chunked(b"8000\r\n" + b"x" * 0x8000 + END) + (b"8000\r\n" + b"x" * 0x8000 + END) * 9,
        to=413,
    ),
    # Expect
    case("100-continue", post(b"abc", CONTINUE, b"Content-Length: 3"), to=200),
    case("100-continue, awaited", post(b"", CONTINUE, b"Content-Length: 3"), Move.READ, b"abc", to=200),
    case("100-continue, too large", post(b"", CONTINUE, b"Content-Length: 999999"), to=413),
    case("100-continue, never sent", post(b"", CONTINUE, b"Content-Length: 3"), Move.READ, Move.CLOSE, to=()),
    case("100-continue by GET", get(b"/", CONTINUE), to=200),
    case(
        "100-continue by HTTP/1.0",
        b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
        to=200,
    ),
    case("100-continue, answered early", post(b"", CONTINUE, b"Content-Length: 3", target=b"/early"), to=401),
    case("Expect of something", post(b"abc", b"Expect: the-unexpected", b"Content-Length: 3"), to=200),
    # Several requests, early answers
    case("two", GOOD * 2, to=(200, 200)),
    case("fifty", GOOD * 50, to=(200,) * 50),
    case("two, then junk", GOOD * 2 + b"\x00junk", to=(200, 200, 400)),
    case("bytes after Connection: close", get(b"/", b"Connection: close") + GOOD + b"\0" * 9999, to=200),
    case(
        "after an early answer",
        post(b"ab", b"Content-Length: 9", target=b"/early"),
        Move.READ,
        b"cdefghi" + GOOD,
        to=(401, 200),
    ),
    case("early answer, body too late", post(b"ab", b"Content-Length: 9", target=b"/early"), to=401),
    case(
        "early answer, endless body",
        chunked((b"8000\r\n" + b"x" * 0x8000 + END) * 20, target=b"/early"),
        to=None,
    ),
    case(
        "early answer, broken body", chunked(b"2\r\nab\r\n", target=b"/early"), Move.READ, b"zz\r\n", to=401
    ),
    case(
        "early answer, then a reset",
        post(b"ab", b"Content-Length: 9", target=b"/early"),
        Move.READ,
        Move.RESET,
        to=None,
    ),
    case("HEAD", get(method=b"HEAD"), to=200),
    case("HEAD, twice", get(method=b"HEAD") * 2, to=(200, 200)),
    case("HEAD of a failure", get(b"/boom", method=b"HEAD"), to=500),
    case("failure, then another", get(b"/boom") + GOOD, to=500),
    case("unknown path", get(b"/nowhere") + GOOD, to=(404, 200)),
    case("wrong verb", get(method=b"DELETE") + GOOD, to=(405, 200)),
    # Leaving
    case("reset after a request", GOOD, Move.RESET, to=None),
    case("half close after a request", GOOD, Move.HALF_CLOSE, to=None),
    case("reset in the wait", get(b"/wait"), Move.RESET, to=None),
    case("close in the wait", get(b"/wait"), Move.CLOSE, to=()),
    case("half close in the wait", get(b"/wait"), Move.HALF_CLOSE, to=()),
    case("junk in the wait", get(b"/wait") + b"\0\0\0", Move.CLOSE, to=None),
    case("reset in a stream", get(b"/sse"), Move.READ, Move.RESET, to=None),
    case("close in a stream", get(b"/sse"), Move.READ, Move.CLOSE, to=()),
    case("half close in a stream", get(b"/sse"), Move.READ, Move.HALF_CLOSE, to=200),
    case("junk in a stream", get(b"/sse"), Move.READ, b"junk\0" * 50, Move.CLOSE, to=None),
    case("a stream by HTTP/1.0", get(b"/sse", version=b"HTTP/1.0"), Move.READ, Move.CLOSE, to=()),
    case("reset in a flood", get(b"/flood"), Move.READ, Move.RESET, to=None),
    case("close in a flood", get(b"/flood"), Move.READ, Move.CLOSE, to=()),
)
