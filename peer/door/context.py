"""What one door's views are given, and who a request comes from."""

from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import attrs
from quart import Request

from actors.desk import Desk
from actors.house import House
from actors.registrar import Registrar
from actors.rules.refusal import Refusal
from actors.rules.visibility import Reader
from actors.state.keys import Key
from actors.streams import Streams
from peer.door.catalogue import Catalogue
from peer.door.problems import unauthorized

WELL_KNOWN = "/.well-known/best"


@attrs.frozen
class Door:
    """One BEST surface. A workspace's will be the same class over another log and catalogue.

    Args:
        endpoint: its public base URL, no slash at the end.
        instance: the peer's own id.
        version: the product's.
        streams_per_credential: most open streams of a key with a share.
        data: the peer's data folder, for its owner's eyes.
    """

    endpoint: str
    instance: str
    version: str
    manifest: bytes
    catalogue: Catalogue
    house: House
    desk: Desk
    registrar: Registrar
    streams: Streams
    streams_per_credential: int
    data: Path

    @property
    def manifest_url(self) -> str:
        """Where the manifest is."""
        return f"{self.endpoint}{WELL_KNOWN}"

    def key_of(self, request: Request) -> Key:
        """The open key that a request carries, in `X-Api-Key` or as a bearer token (F12).

        Raises:
            Refusal: as `open_key`.
        """
        headers = request.headers
        return self.open_key(headers.get("x-api-key"), headers.get("authorization"), request.scope["state"])

    def open_key(
        self, api_key: str | None, authorization: str | None, state: MutableMapping[str, Any]
    ) -> Key:
        """The open key in one of the two header values; its holder is noted for the request's log line.

        Every path but the metrics' gets its key from here, so that a collector's opens none of them.

        Raises:
            Refusal: UNAUTHORIZED; FORBIDDEN for a collector's key, which opens the metrics alone.
        """
        key = self._known(api_key, authorization, state)
        if key.is_metrics_only:
            raise Refusal(
                "FORBIDDEN",
                "this key was approved for metrics alone and opens nothing else",
                scopes=list(key.grant.scopes),
            )
        return key

    def metrics_key_of(self, request: Request) -> Key:
        """The open key that a request for the metrics carries: any, a collector's too (F36).

        Raises:
            Refusal: UNAUTHORIZED.
        """
        headers = request.headers
        return self._known(headers.get("x-api-key"), headers.get("authorization"), request.scope["state"])

    def _known(self, api_key: str | None, authorization: str | None, state: MutableMapping[str, Any]) -> Key:
        secret = api_key or bearer(authorization)
        if secret is None:
            raise unauthorized(self.manifest_url, "no key came with this")
        key = self.registrar.authenticate(secret)
        if key is None:
            raise unauthorized(
                self.manifest_url, "this key opens nothing: it is unknown, has run out or was taken back"
            )
        state["holder"] = key.holder
        return key


async def body_of(request: Request) -> bytes:
    """The whole body; the server has bounded it."""
    data = await request.get_data(as_text=False)
    return data.encode() if isinstance(data, str) else data


def bearer(authorization: str | None) -> str | None:
    """The token of an `Authorization: Bearer` value (RFC 6750 2.1)."""
    if authorization is None:
        return None
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def reader_of(key: Key) -> Reader:
    """Whose eyes a key reads the log with (F5)."""
    return Reader(key.holder, sees_all=key.sees_all)
