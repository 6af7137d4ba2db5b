"""A key that is sent in the wrong place stays there: no log line, fact or answer repeats it (F35, S09)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from peer.folder import read_admin_token
from tests.support.agents import DEVICE_GRANT, envelope
from tests.support.peers import MODEL_BYTES, PeerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

MARK = "bp_MARKED" + "x7Q-" * 9 + "_end"  # of a key's form, but nobody's
DEPLOYMENT = "dep-" + "x" * 22
DEPLOY: dict[str, Any] = {"model": "small", "engine": "llamacpp", "memory_bytes": MODEL_BYTES}
PROMPT: dict[str, Any] = {"deployment": DEPLOYMENT, "messages": [{"role": "user", "content": "hello"}]}
FORM: dict[str, str] = {
    "client_id": "c",
    "connection": "lab",
    "agent_label": "l",
    "credential_lifetime": "session",
}
TOKEN: dict[str, str] = {"grant_type": DEVICE_GRANT, "device_code": "d", "client_id": "c"}
PATHS = (
    "/",
    "/.well-known/best",
    "/commands",
    "/commands/deploy-model/1.0",
    "/events",
    "/events/stream",
    "/queries",
    "/queries/get-workloads",
    "/queries/get-workloads/1.0",
    "/workflows/serve-a-model",
    "/oauth/device",
    "/oauth/token",
    "/device",
    "/admin/status",
    "/admin/pending",
)
HEADERS = (
    "authorization",
    "x-api-key",
    "cookie",
    "user-agent",
    "referer",
    "origin",
    "accept",
    "content-type",
    "last-event-id",
    "x-forwarded-for",
    "host",
    MARK,
)


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeerProcess]:
    settings = {"BEST_PEER_LOG": "debug"}
    with PeerProcess(tmp_path_factory.mktemp("peer"), settings) as peer:
        yield peer


def marked(document: Any) -> Iterator[Any]:
    """The document with the mark in each place in turn: as a value, as a name, and beside the others."""
    if isinstance(document, dict):
        for name, value in document.items():
            for inner in marked(value):
                yield {**document, name: inner}
            yield {(MARK if other == name else other): item for other, item in document.items()}
        yield {**document, MARK: 1}
    elif isinstance(document, list):
        for place, value in enumerate(document):
            for inner in marked(value):
                yield [*document[:place], inner, *document[place + 1 :]]
    yield MARK


def carried(sent: Any) -> bool:
    """Whether the mark stands where what is sent is for the one who reads it: a model's name, a message."""
    data = sent.get("data") if isinstance(sent, dict) else None
    if not isinstance(data, dict):
        return False
    if MARK in (data.get("model"), sent.get("correlationid"), sent.get("id")):
        return True
    messages = data.get("messages")
    return isinstance(messages, list) and any(
        isinstance(m, dict) and m.get("content") == MARK for m in messages
    )


def requests(client: httpx.Client, key: str, token: str) -> Iterator[httpx.Response]:
    """One request for each place of a request where a key could be put by mistake."""
    mine = {"x-api-key": key}
    for path in PATHS:
        for header in HEADERS:
            for value in (MARK, f"Bearer {MARK}"):
                yield client.get(path, headers={header: value} if header != MARK else {MARK: "1"})
        yield client.get(f"{path}?access_token={MARK}")
        yield client.get(f"{path}?{MARK}=1", headers=mine)
        yield client.get(
            path, params={"type": MARK, "after": MARK, "limit": MARK, "from": MARK}, headers=mine
        )
        yield client.get(path, params={"deployment": MARK, "user_code": MARK}, headers=mine)
        yield client.get(f"{path}/{MARK}", headers=mine)
        yield client.request(MARK[:20], path)
        yield client.post(path, content=MARK, headers={**mine, "content-type": "application/json"})
    for command, data in (
        ("DeployModel", DEPLOY),
        ("Prompt", PROMPT),
        ("RunJob", {"image": "i", "env": {"A": "b"}}),
    ):
        for sent in marked(envelope(str(client.base_url), command, data, correlationid="chain")):
            if not carried(sent):
                yield client.post("/commands", json=sent, headers=mine)
    for path, form in (("/oauth/device", FORM), ("/oauth/token", TOKEN)):
        for sent in marked(form):
            if isinstance(sent, dict):
                yield client.post(path, data=sent)
            yield client.post(path, json=sent)
    owner = {"authorization": f"Bearer {token}"}
    for path, body in (
        ("/admin/approve", {"user_code": "BCDF-GHJK", "scopes": ["all"], "memory_bytes": 1}),
        ("/admin/revoke", {"name": "nobody", "keep_running": False}),
    ):
        for sent in marked(body):
            yield client.post(path, json=sent, headers=owner)
            yield client.post(path, json=sent, headers={"authorization": f"Bearer {MARK}"})


def test_a_misplaced_key_is_repeated_nowhere(peer: PeerProcess) -> None:
    key, token = peer.sign_in(), read_admin_token(peer.data)
    sent = 0
    with peer.client() as client:
        for answer in requests(client, key, token):
            sent += 1
            shown = answer.request.url.path, answer.request.content[:300]
            assert answer.status_code < 500 or answer.status_code == 501, (shown, answer.text)
            if answer.status_code == 200 and answer.request.url.path == "/oauth/device":
                continue  # its answer tells the codes, and the page shows whom it lets in
            assert MARK not in answer.text, shown
            assert key not in answer.text, shown
            assert token not in answer.text, shown
    assert sent > 500
    log = peer.log.read_text()
    for secret in (MARK, key, token):
        assert secret not in log
    assert log.count(" request ") > 500  # and it does tell of them
    for path in peer.data.rglob("*"):
        if path.is_file() and path.name != "admin-token":
            text = path.read_text(errors="replace")
            for secret in (MARK, key, token):
                assert secret not in text, path


def test_a_key_is_in_no_fact_of_what_it_did(peer: PeerProcess) -> None:
    key = peer.sign_in()
    with peer.client(**{"x-api-key": key}) as client:
        for command, data in (("DeployModel", DEPLOY), ("RevokeAgent", {})):
            sent = envelope(peer.endpoint, command, data)
            assert client.post("/commands", json=sent).status_code == 201
    other = peer.sign_in()
    with peer.client(**{"x-api-key": other}) as client:
        events = json.dumps(client.get("/events").json())
    for name in ("accepted.jsonl", "keys.jsonl"):
        assert key not in (peer.data / name).read_text()
    assert key not in events
    assert key not in peer.log.read_text()
