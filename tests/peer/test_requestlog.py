"""The door's request lines: what they say, and what they can never be made to say (F35)."""

from __future__ import annotations

import io
import json
import re

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.codes import Codes
from peer.logs import Logs, LogSpec, configure_logging, parse_log_spec
from peer.requestlog import RequestLog

LINE = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO door request( abandoned)?"
    r" client=(\S+) method=(\S+|\".*\") path=(\S+|\".*\") status=(\d+|-) holder=(\S+) ms=(\S+)"
)
KEY = "bp_" + "Ab3-_" * 8 + "xyz"


@attrs.frozen(kw_only=True)
class Request:
    client_host: str | None = "192.0.2.7"
    client_port: int | None = 51234
    method: str = "GET"
    path: str = "/events"
    status: int | None = 200
    seconds_to_headers: float | None = 0.0123
    holder: str | None = "h-0123456789abcdef"


def written(*requests: Request, spec: LogSpec | None = None) -> list[str]:
    """The lines that these requests make."""
    stream = io.StringIO()
    with configure_logging(spec or LogSpec(), stream) as logs:
        tell = RequestLog()
        for request in requests:
            tell(request)
        assert logs.close()
    return stream.getvalue().splitlines()


def test_a_request_is_one_line_with_all_of_its_parts() -> None:
    [line] = written(Request())
    assert line.endswith(
        " INFO door request client=192.0.2.7:51234 method=GET path=/events status=200"
        " holder=h-0123456789abcdef ms=12"
    )
    assert LINE.fullmatch(line)


def test_an_abandoned_request_is_a_line_with_no_status() -> None:
    [line] = written(Request(status=None, holder=None))
    assert " door request abandoned client=" in line
    assert " status=- holder=- " in line


def test_an_ipv6_client_is_told_in_brackets_and_an_unknown_one_as_a_dash() -> None:
    lines = written(Request(client_host="2001:db8::1"), Request(client_host=None, client_port=None))
    assert "client=[2001:db8::1]:51234 " in lines[0]
    assert "client=- " in lines[1]


def test_the_query_is_never_told() -> None:
    [line] = written(Request(path="/events?after=secret"))
    assert "path=/events " in line
    assert "secret" not in line


@pytest.mark.parametrize("padding", [0, 490, 505, 511])
def test_a_key_in_a_path_is_taken_out_even_where_the_line_is_cut(padding: int) -> None:
    [line] = written(Request(path="/" + "x" * padding + "/" + KEY + "/" + "y" * 600))
    assert "Ab3" not in line


@pytest.mark.parametrize(
    "spelled", [KEY.replace("_", "%5F"), KEY.replace("b", "%62"), f"%20{KEY[:9]}%{ord(KEY[9]):x}{KEY[10:]}"]
)
def test_a_key_that_is_spelled_in_percent_signs_is_taken_out_too(spelled: str) -> None:
    [line] = written(Request(path=f"/a%20b/{spelled}/c%0Ad"))
    assert "yz" not in line
    assert "[key removed]" in line
    assert LINE.fullmatch(line)


def test_a_device_code_in_a_path_is_taken_out() -> None:
    """Until its agent has come it is worth a key."""
    codes = Codes(lambda: 0.0)
    device_code, _ = codes.begin(
        client_id="c", address=None, name="lab", agent_label=None, lifetime="durable"
    )
    [line] = written(Request(path=f"/oauth/token/{device_code}"))
    assert 'path="/oauth/token/[key removed]"' in line


def test_a_path_with_line_breaks_stays_one_line_and_can_be_read_back() -> None:
    path = "/x\n2026-10-19T12:00:00.000Z INFO door request client=127.0.0.1:1\r\x1b[31m\x85\u2028é\x7f"
    [line] = written(Request(path=path))
    assert line.isascii()
    assert line.isprintable()
    quoted = re.search(r"path=(\".*\") status", line)
    assert quoted is not None
    assert json.loads(quoted[1]) == path


def test_a_long_path_is_cut_and_says_so() -> None:
    [line] = written(Request(path="/" + "a" * 100_000, method="G" * 5000))
    assert len(line) < 800
    assert "(100001 characters)" in line


@settings(deadline=None, max_examples=60)
@given(
    st.builds(
        Request,
        client_host=st.none() | st.text(max_size=30).filter(lambda host: " " not in host),
        client_port=st.none() | st.integers(),
        method=st.text(max_size=10),
        path=st.text(st.characters(), max_size=60),
        status=st.none() | st.integers(100, 599),
        seconds_to_headers=st.none() | st.floats(),
        holder=st.none() | st.just("h-1"),
    )
)
def test_whatever_a_request_holds_is_one_printable_line(request: Request) -> None:
    [line] = written(request)
    assert line.isascii()
    assert line.isprintable()
    assert " INFO door request" in line


def test_request_lines_are_quieted_by_the_doors_level_alone() -> None:
    assert written(Request(), spec=parse_log_spec("info,door=warning")) == []
    assert len(written(Request(), spec=parse_log_spec("error,door=info"))) == 1


def test_a_closed_log_takes_requests_without_a_word() -> None:
    logs: Logs = configure_logging(LogSpec(), io.StringIO())
    logs.close()
    RequestLog()(Request())
