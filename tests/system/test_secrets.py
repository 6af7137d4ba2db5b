"""A secret sent in a wrong place stays there: no log line, fact, metric or answer repeats it (F35, S09).

The one exception is the log's: it holds each request's path as it arrived, by design. There whatever looks
like a key is taken out, and a secret of another form is not known as one.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from peer.folder import read_admin_token
from peer.logs import configure_logging, parse_log_spec
from tests.support.agents import envelope
from tests.support.misplaced import COMMANDS, answer_to, everywhere, raw
from tests.support.peers import PeerProcess, open_door

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

MARK = "bp_MARKED" + "x7Q-" * 9 + "_end"
"""Of a key's form, and nobody's."""
PLAIN = "hunter2.Marked-Password"
"""A secret that nothing can know as one."""


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[PeerProcess]:
    with PeerProcess(tmp_path, {"BEST_PEER_LOG": "debug"}) as peer:
        yield peer


def shown_to_all(peer: PeerProcess) -> Iterator[tuple[str, str]]:
    """Everything that anybody may read of the peer afterwards, with the place it was found."""
    collector, token = peer.sign_in(scopes=["metrics"]), read_admin_token(peer.data)
    with peer.client(**{"x-api-key": peer.sign_in()}) as client:
        answer = client.get("/events", params={"limit": "1000"})
        assert answer.status_code == 200
        yield "the events", answer.text
        for path in ("/queries/get-workloads", "/queries/get-hardware-state", "/metrics"):
            yield path, _whole(client.get(path))
        yield "a collector's metrics", _whole(client.get("/metrics", headers={"x-api-key": collector}))
        for name in ("status", "pending", "keys", "holds"):
            owner = {"authorization": f"Bearer {token}"}
            yield f"the owner's {name}", _whole(client.get(f"/admin/{name}", headers=owner))
        stream = {"last-event-id": "from the beginning"}
        with client.stream("GET", "/events/stream", headers=stream) as told:
            yield "the stream", next(told.iter_text())


def _whole(answer: httpx.Response) -> str:
    """Head and body of an answer."""
    return f"{answer.status_code} {answer.headers.multi_items()} {answer.text}"


def files_of(peer: PeerProcess) -> Iterator[tuple[Path, str]]:
    """What lies in the data folder, but the owner's own token."""
    for path in sorted(peer.data.rglob("*")):
        if path.is_file() and path.name != "admin-token":
            yield path, f"{path} {path.read_text(errors='replace')}"


def test_a_misplaced_key_is_repeated_nowhere(peer: PeerProcess) -> None:
    key, token = peer.sign_in(), read_admin_token(peer.data)
    secrets = (MARK, key, token)
    sent = 0
    with peer.client() as client:
        for request in everywhere(MARK, peer.endpoint, key, token):
            if request.is_data:
                continue
            sent += 1
            answer = request.by(client)
            assert answer.status_code < 500 or answer.status_code in (501, 503), (request.place, answer.text)
            codes = answer.status_code == 200 and request.path == "/oauth/device"
            for secret in secrets:
                assert secret not in _whole(answer) or codes, (request.place, request.path, answer.text)
            yields_path = client.get(f"{request.path.split('?')[0]}/{MARK}") if sent % 50 == 0 else answer
            assert MARK not in _whole(yields_path) or codes
    for data in raw(MARK):
        assert MARK.encode() not in answer_to(peer.endpoint, None, data), data[:60]
    assert sent > 1000
    for place, text in shown_to_all(peer):
        for secret in secrets:
            assert secret not in text, place
    assert peer.stop() == 0
    log = peer.log.read_text()
    assert log.count(" request ") > sent  # and it does tell of them
    assert "Traceback" not in log
    for secret in secrets:
        assert secret not in log
    for path, text in files_of(peer):
        for secret in secrets:
            assert secret not in text, path


def test_a_misplaced_secret_of_any_form_is_in_no_log_fact_metric_or_file(peer: PeerProcess) -> None:
    """Its sender alone may read it again: the name of a parameter or field that there is not."""
    key, token = peer.sign_in(), read_admin_token(peer.data)
    with peer.client() as client:
        for request in everywhere(PLAIN, peer.endpoint, key, token):
            if not request.is_data:
                answer = request.by(client)
                assert PLAIN not in str(answer.headers.multi_items()), request.place
    for data in raw(PLAIN):
        answer_to(peer.endpoint, None, data)
    for place, text in shown_to_all(peer):
        assert PLAIN not in text, place
    assert peer.stop() == 0
    for path, text in files_of(peer):
        assert PLAIN not in text, path
    for line in peer.log.read_text().splitlines():
        assert PLAIN not in line, line


def test_what_a_command_carries_is_in_its_own_files_and_in_no_log(peer: PeerProcess) -> None:
    key, token = peer.sign_in(), read_admin_token(peer.data)
    other = peer.sign_in(memory_bytes=1 << 30)
    accepted = 0
    with peer.client() as client:
        for request in everywhere(PLAIN, peer.endpoint, key, token):
            if request.is_data:
                accepted += request.by(client).status_code == 201
    assert accepted > 3
    with peer.client(**{"x-api-key": other}) as client:
        assert PLAIN not in client.get("/events").text, "another holder's"
        assert PLAIN not in _whole(client.get("/metrics"))
    assert peer.stop() == 0
    assert PLAIN not in peer.log.read_text()
    for path, text in files_of(peer):
        if PLAIN in text:
            assert path == peer.data / "accepted.jsonl" or path.parent.name in ("events", "workloads"), path


def test_the_log_tells_a_path_as_it_arrived_without_what_looks_like_a_key(peer: PeerProcess) -> None:
    with peer.client() as client:
        for mark in (MARK, PLAIN):
            for path in (f"/{mark}", f"/commands/{mark}/1.0", f"/device/{mark}?user_code={mark}"):
                answer = client.get(path)
                assert MARK not in _whole(answer)
    log = peer.log.read_text()
    assert MARK not in log
    assert f"path=/{PLAIN} status=404" in log
    assert log.count("[key removed]") == 3
    assert f"user_code={PLAIN}" not in log


def test_a_key_is_in_no_fact_of_what_it_did(peer: PeerProcess) -> None:
    key = peer.sign_in()
    with peer.client(**{"x-api-key": key}) as client:
        for command, data in (("DeployModel", COMMANDS["DeployModel"]), ("RevokeAgent", {})):
            sent = envelope(peer.endpoint, command, data)
            assert client.post("/commands", json=sent).status_code == 201
    other = peer.sign_in()
    with peer.client(**{"x-api-key": other}) as client:
        events = json.dumps(client.get("/events").json())
    for name in ("accepted.jsonl", "keys.jsonl"):
        assert key not in (peer.data / name).read_text()
    assert key not in events
    assert key not in peer.log.read_text()


async def test_a_fault_of_ours_over_a_request_tells_no_key_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A traceback holds what was raised, and that may hold what was sent."""

    async def faulty(door: Any, request: Any) -> Any:
        raise RuntimeError(f"cannot serve {request.headers} {request.url} {request.args}")

    written = io.StringIO()
    monkeypatch.setattr("peer.door.http.get_events", faulty)
    with configure_logging(parse_log_spec("debug"), written) as logs:
        async with open_door(tmp_path) as door:
            agent = await door.sign_in()
            answer = await agent.http.get(
                f"/events?type={MARK}", headers={"authorization": f"Bearer {MARK}", "cookie": f"a={MARK}"}
            )
            assert answer.status_code == 500
            assert MARK not in _whole(answer)
        assert logs.close()
    log = written.getvalue()
    assert "RuntimeError: cannot serve" in log
    assert "[key removed]" in log
    for secret in (MARK, agent.key, door.admin_token):
        assert secret not in log
