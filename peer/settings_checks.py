"""What is wrong with settings that are each well formed: together, or with what they name (F33, F34)."""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING, Final

import attrs

from peer.log_text import clean
from peer.setting import Problem, shown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from peer.addresses import Endpoint
    from peer.settings import Settings

LISTEN: Final = "BEST_PEER_LISTEN"
ENDPOINT: Final = "BEST_PEER_ENDPOINT"
CLEARTEXT: Final = "BEST_PEER_CLEARTEXT"
TLS_CERT: Final = "BEST_PEER_TLS_CERT"
TLS_KEY: Final = "BEST_PEER_TLS_KEY"
MODELS: Final = "BEST_PEER_MODELS"
LLAMA_SERVER: Final = "BEST_PEER_LLAMA_SERVER"
MODEL_STORE: Final = "BEST_PEER_MODEL_STORE"
RUNTIME: Final = "BEST_PEER_RUNTIME"


def conflicts(settings: Settings, given: Collection[str]) -> Iterator[Problem]:
    """Every conflict, each naming the variables it rests on.

    Args:
        settings: all of them, defaults filled in.
        given: the names of those that the environment holds.
    """
    yield from _endpoint(settings, ENDPOINT in given)
    yield from _tls(settings)
    if MODELS in given and not settings.models.is_dir():
        yield _names_nothing(MODELS, settings.models, "a folder that is there", "make it")
    yield from _model_store(settings)
    program = settings.llama_server
    if program is not None and not (program.is_file() and os.access(program, os.X_OK)):
        yield _names_nothing(LLAMA_SERVER, program, "a program that may be run", "install it there")


def _model_store(settings: Settings) -> Iterator[Problem]:
    store = settings.model_store
    if store is None:
        return
    if settings.runtime != "docker":
        yield Problem(
            variable=MODEL_STORE,
            shown=shown(store),
            expected=f"a store is for engines in containers, and {RUNTIME} is {settings.runtime}",
            fix=f"unset it, or set {RUNTIME}=docker",
            involves=frozenset({RUNTIME}),
        )
    elif not all(_opens(store / part) for part in ("blobs", "manifests")):
        what = "a library of Ollama that the peer can read: a folder with blobs/ and manifests/ in it"
        yield _names_nothing(MODEL_STORE, store, what, "name one, give the peer's user access")


def in_the_clear(settings: Settings) -> bool:
    """Whether keys would travel unencrypted: http where listening or being reached is not loopback alone."""
    local = settings.listen.is_loopback and settings.endpoint.is_loopback
    return settings.endpoint.scheme == "http" and not local


def _endpoint(settings: Settings, endpoint_given: bool) -> Iterator[Problem]:
    listen, endpoint = settings.listen, settings.endpoint
    if not endpoint_given and (listen.is_every_interface or "%" in listen.host):
        yield Problem(
            variable=ENDPOINT,
            shown=None,
            expected=f"{LISTEN}={listen} does not say by which address consumers reach the door",
            fix=f"set {ENDPOINT}=https://<address they reach>:{listen.port or '<port>'}",
            involves=frozenset({LISTEN}),
        )
    elif in_the_clear(settings) and settings.cleartext is None:
        off = [] if listen.is_loopback else [f"{LISTEN}={listen}"]
        if endpoint_given and not endpoint.is_loopback:
            off.append(f"{ENDPOINT}={endpoint}")
        verb = "is" if len(off) == 1 else "are"
        yield Problem(
            variable=ENDPOINT if endpoint_given else LISTEN,
            shown=shown(endpoint if endpoint_given else listen),
            expected=f"http:// is served on loopback alone, and {' and '.join(off)} {verb} not loopback",
            fix=f"set {ENDPOINT}={_over_tls(endpoint)}, or {CLEARTEXT}=vpn where a VPN encrypts every hop",
            involves=frozenset({LISTEN, ENDPOINT, CLEARTEXT}),
        )


def _over_tls(endpoint: Endpoint) -> str:
    """The endpoint to set instead, as far as it can be known."""
    if endpoint.is_loopback or not endpoint.port:
        return f"https://<address they reach>:{endpoint.port or '<port>'}"
    return str(attrs.evolve(endpoint, scheme="https"))


def _tls(settings: Settings) -> Iterator[Problem]:
    cert, key = settings.tls_cert, settings.tls_key
    involves = frozenset({TLS_CERT, TLS_KEY})
    if cert is None or key is None:
        if cert is not key:
            missing, other = (TLS_CERT, TLS_KEY) if cert is None else (TLS_KEY, TLS_CERT)
            yield Problem(
                variable=missing,
                shown=None,
                expected=f"{other} is set, and the two go together",
                fix=f"set it, or unset {other}",
                involves=involves,
            )
        return
    if settings.endpoint.scheme != "https":
        yield Problem(
            variable=TLS_CERT,
            shown=shown(cert),
            expected=f"a certificate is for an https:// endpoint, and {ENDPOINT} is {settings.endpoint}",
            fix=f"set {ENDPOINT} to an https:// address, or unset {TLS_CERT} and {TLS_KEY}",
            involves=involves | {ENDPOINT, LISTEN},
        )
    unreadable = [(name, path) for name, path in ((TLS_CERT, cert), (TLS_KEY, key)) if not _readable(path)]
    for name, path in unreadable:
        yield _names_nothing(name, path, "a file that the peer can read", "mend that")
    if not unreadable and (reason := _does_not_load(cert, key)):
        yield Problem(
            variable=TLS_CERT,
            shown=shown(cert),
            expected=f"it does not load with {TLS_KEY}={shown(key)} ({reason})",
            fix="name a PEM chain and its own key, not encrypted",
            involves=involves,
        )


def _readable(path: Path) -> bool:
    try:
        if not path.is_file():
            return False  # a pipe would wait for a writer
        with path.open("rb") as file:
            return bool(file.read(1))
    except OSError:
        return False


def _opens(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            next(entries, None)
    except OSError:
        return False
    return True


def _does_not_load(cert: Path, key: Path) -> str | None:
    try:
        # Without an answer of ours, an encrypted key would make OpenSSL ask at the terminal.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=lambda: "")
    except (OSError, ValueError) as error:
        return clean(getattr(error, "reason", None) or str(error), 80)
    return None


def _names_nothing(name: str, path: Path, what: str, fix: str) -> Problem:
    return Problem(variable=name, shown=shown(path), expected=f"expected {what}", fix=f"{fix}, or unset it")
