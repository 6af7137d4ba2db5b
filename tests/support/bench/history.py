"""A data folder with a past: facts of many lifecycles as a peer would have told them, and one key.

Facts come in blocks of a thousand of the same make: sixty deployments from start to end, prompts answered
with some hundred bytes, and one long conversation of the key's own. So a log of a thousand blocks differs
from one of a single block in nothing but its length.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import msgspec

from actors.codes import digest
from actors.log.accepted import Record
from actors.messages import events as e
from actors.messages.envelope import EnvelopeEncoder, Fact
from actors.messages.times import time_text
from actors.state.keys import Grant, Issued, Key
from peer.door.catalogue import Catalogue

BLOCK = 1000
HOLDER = "h-bench0owner0000000000"
CONVERSATION = "PromptAnswered"
"""The type of the facts that are filtered for; the key's own in each block are more than a page of them."""

_DEPLOYMENTS = 60
_UNTIL_READY = 4
"""Facts of a deployment up to its being ready."""
_EVERY = 8
"""Every eighth fact is one of the block's conversation."""
_TENANTS = 40
_MODELS = ("smollm2-135m-instruct-q4_1", "qwen3-0.6b-q8_0", "gemma-3-270m-it-q8_0", "llama-3.2-1b-q4_k_m")
_TEXT = (
    "the tide rises with the pull of the moon and falls again as the earth turns beneath it while a river "
    "carries what the rain has left to the sea in its own time and nobody who stands at the bank would say "
    "that it hurries although each drop has come a long way and has still far to go"
)
_WORDS = _TEXT.split()
_STEP_MS = 2592
"""A million facts are thirty days."""


@attrs.frozen
class History:
    """What was written: how many facts, their bytes, each block's conversation, and how many commands."""

    data: Path
    facts: int
    size_bytes: int
    conversations: tuple[str, ...]
    commands: int


def encoder() -> EnvelopeEncoder:
    """As a peer's own, with an endpoint of usual length."""
    return EnvelopeEncoder(
        "urn:best-peer:p-0123456789abcdef0123",
        dict(Catalogue.load("http://127.0.0.1:7777").event_dataschemas),
    )


def write_key(data: Path, grant: Grant | None = None) -> str:
    """Give a fresh data folder one key, which may do everything unless told; its secret."""
    secret = f"bp_{secrets.token_urlsafe(32)}"
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = Key(holder=HOLDER, name="bench", grant=grant or Grant(), issued_ms=time.time_ns() // 1_000_000)
    record = Issued(key=key, digest=digest(secret), device_digest=digest("none"))
    path = data / "keys.jsonl"
    path.touch(mode=0o600)
    path.write_bytes(msgspec.json.encode(record) + b"\n")
    return secret


def write_keys(data: Path, count: int, grant: Grant) -> list[str]:
    """Give a data folder that has a key `count` more, each of a holder of its own; their secrets."""
    secrets_made = [f"bp_{secrets.token_urlsafe(32)}" for _ in range(count)]
    issued = time.time_ns() // 1_000_000
    with (data / "keys.jsonl").open("ab") as file:
        for number, secret in enumerate(secrets_made):
            key = Key(holder=f"h-tenant{number:014d}", name=f"tenant-{number}", grant=grant, issued_ms=issued)
            record = Issued(key=key, digest=digest(secret), device_digest=digest(f"none-{number}"))
            file.write(msgspec.json.encode(record) + b"\n")
    return secrets_made


def write_history(data: Path, facts: int, *, commands: bool = True) -> History:
    """Write `facts` facts, whole blocks, as day files that end now, and their commands as accepted.

    Args:
        data: a data folder; its log must be empty.
        facts: a multiple of `BLOCK`.
        commands: whether `accepted.jsonl` is written too, each command completed and shortened.
    """
    chance = random.Random(7)
    make = encoder()
    (data / "events").mkdir(mode=0o700, parents=True, exist_ok=True)
    conversations: list[str] = []
    accepted: list[bytes] = []
    seq = size = 0
    now = time.time_ns() // 1_000_000 - facts * _STEP_MS
    day, lines = "", list[bytes]()
    for _ in range(facts // BLOCK):
        conversation = _id(chance)
        conversations.append(conversation)
        for fact in _block(chance, conversation):
            its_day = time_text(now)[:10]
            if its_day != day or len(lines) >= 10 * BLOCK:
                size += _append(data, day, lines)
                day, lines = its_day, []
            lines.append(make.line(fact, seq, now))
            if commands and fact.type in _COMPLETING:
                accepted.append(_command(fact))
            seq += 1
            now += _STEP_MS
    size += _append(data, day, lines)
    if commands:
        (data / "accepted.jsonl").write_bytes(b"".join(accepted))
    return History(data, seq, size, tuple(conversations), len(accepted))


_COMPLETING = frozenset({"DeploymentReady", "PromptAnswered", "PromptFailed", "Undeployed"})


def _append(data: Path, day: str, lines: list[bytes]) -> int:
    if not lines:
        return 0
    text = b"\n".join(lines) + b"\n"
    with (data / "events" / f"{day}.jsonl").open("ab") as file:
        file.write(text)
    return len(text)


def _command(fact: Fact) -> bytes:
    assert fact.causation is not None
    assert fact.correlation is not None
    record = Record(
        id=fact.causation,
        holder=fact.holder or HOLDER,
        correlationid=fact.correlation,
        hash=fact.causation[:32],
    )
    return msgspec.json.encode(record) + b"\n"


def _block(chance: random.Random, conversation: str) -> Iterator[Fact]:
    """A thousand facts: one deployment that is prompted all along, and the lives of others in between."""
    holders = [HOLDER, *(f"h-tenant{chance.randrange(_TENANTS):014d}" for _ in range(3))]
    asked, prompted = _life(chance, HOLDER)
    yield from prompted[:_UNTIL_READY]
    lives = [_life(chance, chance.choice(holders))[1] for _ in range(_DEPLOYMENTS)]
    pending = [fact for stage in zip(*lives, strict=True) for fact in stage]
    between = BLOCK - len(prompted)
    told = 0
    for place in range(between):
        if place % _EVERY == 0:
            yield _answered(chance, HOLDER, asked, conversation)
        elif told < len(pending) and place * len(pending) > told * between * (_EVERY - 1) // _EVERY:
            yield pending[told]
            told += 1
        else:
            yield _answered(chance, chance.choice(holders), asked, None)
    assert told == len(pending)
    yield from prompted[_UNTIL_READY:]


def _life(chance: random.Random, holder: str) -> tuple[str, list[Fact]]:
    """A deployment from its start to its end: its id and its facts."""
    deployment, command = f"dep-{chance.getrandbits(96):024x}", _id(chance)
    model, undeploy = chance.choice(_MODELS), _id(chance)
    told: list[tuple[e.Event, str]] = [
        (
            e.DeploymentStarted(
                deployment, model, "llamacpp", "cpu", "cpu", 1 << 28, isolation="process", holder=holder
            ),
            command,
        ),
        (e.WeightsLoading(deployment), command),
        (e.WeightsLoading(deployment, progress_pct=50), command),
        (e.DeploymentReady(deployment, model, "llamacpp", "cpu", context_tokens=4096, load_ms=480), command),
        (e.DeploymentEnded(deployment, "it was undeployed", 0, ()), command),
        (e.Undeployed(deployment), undeploy),
    ]
    return deployment, [Fact(event, holder, command, cause) for event, cause in told]


def _answered(chance: random.Random, holder: str, deployment: str, conversation: str | None) -> Fact:
    command = _id(chance)
    correlation = conversation or command
    if conversation is None and chance.random() < 0.03:
        failed = e.PromptFailed(deployment, "PROMPT_REFUSED", "the conversation is too long", "send less")
        return Fact(failed, holder, correlation, command)
    words = chance.randrange(20, 80)
    at = chance.randrange(len(_WORDS))
    content = " ".join((_WORDS * 2)[at : at + words])
    event = e.PromptAnswered(deployment, content, _MODELS[0], 87, words, "stop")
    return Fact(event, holder, correlation, command)


def _id(chance: random.Random) -> str:
    text = f"{chance.getrandbits(128):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
