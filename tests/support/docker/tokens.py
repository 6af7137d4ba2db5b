"""Registry tokens: who may pull what, said in JSON Web Tokens that a registry believes.

`python -m tests.support.docker.tokens FOLDER ADDRESS` is the server that gives them out, as the Docker
Registry v2 specification has it; `mint` makes one without asking it.

Who asks with the tester's password, or with the identity token, may do what it asks for. Who asks with the
outsider's password is known and may do nothing; who shows nothing may pull below `public/`; any other is 401.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import sys
import time
import uuid
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

from tests.support.docker.registry import PASSWORD, USERNAME

if TYPE_CHECKING:
    from collections.abc import Iterable

SERVICE = "the bed's registry"
ISSUER = "the bed's token server"
OUTSIDER = "outsider"
OUTSIDER_PASSWORD = "let me in"
IDENTITY_TOKEN = "an-identity-token"
LIFETIME_SECONDS = 300.0
PUBLIC = "public/"


def registry_auth(folder: Path, realm: str) -> dict[str, Any]:
    """Make the key, and say to a registry whom to believe.

    Args:
        folder: where the key and its certificate go.
        realm: the address of the server that gives out tokens.
    """
    folder.mkdir(parents=True, exist_ok=True)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, ISSUER)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=7))
        .sign(key, hashes.SHA256())
    )
    pem, nothing = serialization.Encoding.PEM, serialization.NoEncryption()
    _key_file(folder).write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, nothing))
    bundle = folder / "certificate.pem"
    bundle.write_bytes(certificate.public_bytes(pem))
    return {"token": {"realm": realm, "service": SERVICE, "issuer": ISSUER, "rootcertbundle": str(bundle)}}


def mint(
    folder: Path,
    scopes: Iterable[str],
    *,
    subject: str = USERNAME,
    lifetime_seconds: float = LIFETIME_SECONDS,
) -> str:
    """A token, signed with the key in `folder`.

    Args:
        folder: the one that `registry_auth` was given.
        scopes: what it allows, each `repository:NAME:pull,push`.
        subject: whose it is.
        lifetime_seconds: how long it holds; below zero for one that has ended.
    """
    key = serialization.load_pem_private_key(_key_file(folder).read_bytes(), password=None)
    assert isinstance(key, rsa.RSAPrivateKey)
    now = int(time.time())
    header = {"typ": "JWT", "alg": "RS256", "kid": _key_id(key.public_key())}
    claims = {
        "iss": ISSUER,
        "sub": subject,
        "aud": SERVICE,
        "iat": now - 60,
        "nbf": now - 60,
        # The registry grants a minute to clocks that differ.
        "exp": int(now + lifetime_seconds) - (60 if lifetime_seconds < 0 else 0),
        "jti": uuid.uuid4().hex,
        "access": [_access(scope) for scope in scopes],
    }
    signed = f"{_encoded(header)}.{_encoded(claims)}"
    signature = key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{signed}.{_base64url(signature)}"


def granted(scopes: Iterable[str], user: str | None) -> list[str]:
    """Which of the scopes a user gets; None is who shows nothing."""
    if user == USERNAME:
        return list(scopes)
    if user == OUTSIDER:
        return []
    names = [scope.split(":") for scope in scopes]
    return [f"repository:{name}:pull" for _, name, _ in names if name.startswith(PUBLIC)]


def _access(scope: str) -> dict[str, Any]:
    kind, name, actions = scope.split(":")
    return {"type": kind, "name": name, "actions": actions.split(",")}


def _key_file(folder: Path) -> Path:
    return folder / "key.pem"


def _key_id(key: rsa.RSAPublicKey) -> str:
    """As libtrust names a key: 240 bits of its digest in groups of four letters."""
    kind, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    letters = base64.b32encode(hashlib.sha256(key.public_bytes(kind, form)).digest()[:30]).decode()
    return ":".join(letters[at : at + 4] for at in range(0, len(letters), 4))


def _encoded(value: object) -> str:
    return _base64url(json.dumps(value).encode())


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class _Unknown(Exception):
    """Raised when somebody shows what nobody was given."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30
    folder: Path

    def do_GET(self) -> None:
        """Credentials in the Authorization header, or none."""
        asked = parse_qs(urlsplit(self.path).query)
        self._grant(asked, self.headers.get("Authorization"))

    def do_POST(self) -> None:
        """A form with an identity token or a password, as OAuth has it."""
        form = parse_qs(self.rfile.read(min(int(self.headers.get("Content-Length", "0")), 1 << 16)).decode())
        if form.get("grant_type") == ["refresh_token"]:
            shown = f"Identity {form.get('refresh_token', [''])[0]}"
        else:
            pair = f"{form.get('username', [''])[0]}:{form.get('password', [''])[0]}"
            shown = f"Basic {base64.b64encode(pair.encode()).decode()}"
        self._grant(form, shown)

    def _grant(self, asked: dict[str, list[str]], shown: str | None) -> None:
        try:
            user = _user(shown)
        except _Unknown:
            self._answer(401, {"details": "incorrect username or password"})
            return
        scopes = [scope for given in asked.get("scope", []) for scope in given.split(" ")]
        token = mint(self.folder, granted(scopes, user), subject=user or "")
        self._answer(200, {"token": token, "access_token": token, "expires_in": int(LIFETIME_SECONDS)})

    def _answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the name is the library's
        """Say nothing: a query may hold what nobody should read."""


def _user(shown: str | None) -> str | None:
    if not shown:
        return None
    kind, _, value = shown.partition(" ")
    if kind == "Identity" and value == IDENTITY_TOKEN:
        return USERNAME
    known = {f"{USERNAME}:{PASSWORD}": USERNAME, f"{OUTSIDER}:{OUTSIDER_PASSWORD}": OUTSIDER}
    with suppress(binascii.Error):
        pair = base64.b64decode(value).decode(errors="replace")
        if kind == "Basic" and pair in known:
            return known[pair]
    raise _Unknown


def serve(folder: Path, address: str) -> ThreadingHTTPServer:
    """A server that listens at `address` and gives out tokens signed with the key in `folder`.

    It serves while its `serve_forever` runs.
    """
    host, _, port = address.rpartition(":")
    handler = type("Handler", (_Handler,), {"folder": folder})
    return ThreadingHTTPServer((host, int(port)), handler)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.argv[2]).serve_forever()
