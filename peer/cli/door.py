"""The command line's way to the running peer: found by its record, pinned to its certificate (F14).

The admin token opens the whole machine, so it goes to nobody but the peer over this data folder: the folder's
lock must be held, and over TLS the certificate must be the very one that the peer serves with.
"""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs
import httpx
import msgspec
import trio

from adapters.carrier import Carrier
from peer.addresses import Address, AddressError, bracketed, is_loopback, parse_listen
from peer.cli.outcome import Failed, Refused
from peer.folder import DoorRecord, NoDoor, is_held, read_admin_token

if TYPE_CHECKING:
    from collections.abc import Mapping

CONNECT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 15.0
"""How long any answer but a revoke's may take."""
REVOKE_SECONDS: Final = 30.0
"""A revoke waits at the door for the work to end, twelve seconds at most."""
MAX_ANSWER: Final = 32 * 1024 * 1024
"""Bytes of an answer: ten thousand keys and workloads are a tenth of it."""
MAX_PEM: Final = 1024 * 1024
_FIRST_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_NO_CHECK_TIME: Final = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which the ssl module does not name."""


class _PinMismatch(Failed):
    """Raised when the door shows a certificate that is not its own by its record."""


class _Error(msgspec.Struct):
    code: str
    message: str


class _ErrorBody(msgspec.Struct):
    error: _Error


@attrs.frozen
class Door:
    """The owner's side of the running peer's door. Found by `find`; each call is bounded in time and size.

    Calls raise `Refused` with the door's own words, and `Failed` where no answer of a door came.
    """

    folder: Path
    addresses: tuple[Address, ...]
    tls: ssl.SSLContext | None
    certificate: Path | None
    pins: frozenset[str]
    """The certificates that it trusts, as PEM."""
    _token: str = attrs.field(repr=False, alias="token")

    @classmethod
    def find(cls, folder: Path) -> Door:
        """Find the peer that runs over a data folder.

        Raises:
            FolderError: none runs, it is not open yet, or the folder is another user's.
            Failed: its certificate's file cannot be read.
        """
        held = is_held(folder)
        try:
            record = DoorRecord.read(folder / "door.json")
        except NoDoor:
            if held:
                raise NoDoor(
                    folder, f"the peer over {folder} has not opened its door yet: try again in a moment"
                ) from None
            raise
        if not held:
            raise NoDoor(
                folder,
                f"the peer over {folder} ended without closing its door: start it again with best-peer",
            )
        try:
            token = read_admin_token(folder)
        except NoDoor as error:
            # A peer runs over the folder all the same: its lock is held.
            raise NoDoor(
                error.path, f"{error.path} is gone: start the peer again, which makes a new one"
            ) from None
        certificate = None if record.certificate is None else Path(record.certificate)
        pins = frozenset() if certificate is None else _pins(record, certificate)
        return cls(
            folder=folder,
            addresses=_reachable(record),
            tls=None if certificate is None else pinned(certificate, pins),
            certificate=certificate,
            pins=pins,
            token=token,
        )

    async def get(self, path: str, parameters: Mapping[str, str] | None = None) -> dict[str, Any]:
        """A route's answer."""
        return await self._ask_anew("GET", path, ANSWER_SECONDS, parameters=parameters)

    async def post(self, path: str, body: Any, *, seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
        """A route's answer to a JSON body, waited for `seconds` at most."""
        return await self._ask_anew("POST", path, seconds, body=msgspec.json.encode(body))

    async def _ask_anew(
        self, method: Literal["GET", "POST"], path: str, seconds: float, **more: Any
    ) -> dict[str, Any]:
        """Ask; once more where the door has changed its certificate since it was found. Nothing was sent."""
        try:
            return await self._ask(method, path, seconds, **more)
        except _PinMismatch:
            again = Door.find(self.folder)
            if again.pins == self.pins:
                raise
            return await again._ask(method, path, seconds, **more)  # noqa: SLF001 - of this class

    async def _ask(
        self,
        method: Literal["GET", "POST"],
        path: str,
        seconds: float,
        *,
        parameters: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> dict[str, Any]:
        headers = {
            "authorization": f"Bearer {self._token}",
            "accept": "application/json",
            "accept-encoding": "identity",
        }
        if body is not None:
            headers["content-type"] = "application/json"
        # No environment: a proxy or a bundle of certificates set for the web has no business here.
        async with httpx.AsyncClient(
            transport=Carrier(verify=self.tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), trust_env=False),
            trust_env=False,
            timeout=httpx.Timeout(seconds, connect=CONNECT_SECONDS),
        ) as client:
            for address in self.addresses:
                request = client.build_request(
                    method, f"{self._base(address)}{path}", params=parameters, headers=headers, content=body
                )
                try:
                    with trio.fail_after(seconds):
                        status, answer = await _answer(client, request)
                except httpx.ConnectError as error:
                    self._check_pin(error, address)
                    continue  # another of its addresses may answer
                except (httpx.TimeoutException, trio.TooSlowError) as error:
                    waited = CONNECT_SECONDS if isinstance(error, httpx.ConnectTimeout) else seconds
                    raise Failed(
                        f"the peer at {address} gave no answer within {waited:g} s: "
                        "look at its log, and start it again if it hangs"
                    ) from error
                except httpx.HTTPError as error:
                    # Some come without words; their names are words of a library's.
                    why = f" ({error})" if str(error) else ""
                    raise Failed(
                        f"the peer at {address} broke off before it had answered{why}: look with "
                        "best-peer status whether it did what was asked, and ask again if not"
                    ) from error
                return self._read(address, status, answer)
        tried = " or ".join(map(str, self.addresses))
        raise Failed(f"nobody listens at {tried}, where the peer over {self.folder} was: start it again")

    def _base(self, address: Address) -> str:
        return f"{'http' if self.tls is None else 'https'}://{bracketed(address.host)}:{address.port}"

    def _check_pin(self, error: BaseException, address: Address) -> None:
        """Tell a handshake that failed apart from a door that is not there."""
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ssl.SSLError):
            cause = cause.__cause__ or cause.__context__
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise _PinMismatch(
                f"the door at {address} does not show the certificate in {self.certificate}: "
                "if that file was replaced, start the peer again; nothing was sent"
            ) from error
        if cause is not None:
            raise Failed(
                f"no TLS with the door at {address} ({cause.reason}): start the peer again"
            ) from error

    def _read(self, address: Address, status: int, answer: bytes) -> dict[str, Any]:
        if status == httpx.codes.UNAUTHORIZED:
            raise Refused(
                f"the peer at {address} does not take the admin token in {self.folder}: start it again"
            )
        try:
            if status == httpx.codes.OK:
                return msgspec.json.decode(answer, type=dict[str, Any])
            error = msgspec.json.decode(answer, type=_ErrorBody).error
        except (msgspec.MsgspecError, UnicodeDecodeError) as fault:
            raise Failed(
                f"what listens at {address} answered {status} and no JSON of a door: look at the peer's log"
            ) from fault
        kind = Failed if status >= httpx.codes.INTERNAL_SERVER_ERROR else Refused
        raise kind(f"{error.message} ({error.code})")


def _pins(record: DoorRecord, certificate: Path) -> frozenset[str]:
    """What a door may show: the certificates that it recorded, and the first in its file.

    What follows that in an operator's chain is an authority that signs for others as well.

    Raises:
        Failed: none of them can be read.
    """
    try:
        with certificate.open("rb") as file:
            found = _FIRST_CERTIFICATE.search(file.read(MAX_PEM))
    except OSError as error:
        if record.pins:
            return frozenset(record.pins)
        raise Failed(
            f"cannot read the peer's certificate {certificate} ({error}): start the peer again"
        ) from error
    # An operator's file may be about to be replaced, and hold nothing for a moment.
    first = [] if found is None else [found[0].decode("ascii", "replace")]
    if not first and not record.pins:
        raise Failed(f"{certificate} holds no certificate: start the peer again")
    return frozenset((*record.pins, *first))


def pinned(certificate: Path, pins: frozenset[str]) -> ssl.SSLContext:
    """A context that trusts these certificates alone.

    The name is not looked at, since the door is asked where it listens, nor their dates: the record is the
    proof.

    Raises:
        Failed: one of them is damaged.
    """
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VerifyFlags(_NO_CHECK_TIME)
        context.load_verify_locations(cadata="\n".join(pins))
    except (OSError, ValueError) as error:
        raise Failed(
            f"cannot read the peer's certificate {certificate} ({error}): start the peer again"
        ) from error
    return context


async def _answer(client: httpx.AsyncClient, request: httpx.Request) -> tuple[int, bytes]:
    response = await client.send(request, stream=True)
    try:
        # A door says how long its answers are; what does not is none.
        length = response.headers.get("content-length", "")
        if not length.isdigit() or int(length) > MAX_ANSWER:
            raise Failed(
                f"the door's answer is not one of at most {MAX_ANSWER} bytes: look at the peer's log"
            )
        return response.status_code, await response.aread()
    finally:
        with trio.move_on_after(1, shield=True):
            await response.aclose()


def _reachable(record: DoorRecord) -> tuple[Address, ...]:
    """Where to ask: the addresses bound, loopback for every interface, loopback first."""
    found = []
    for text in record.listen:
        try:
            address = parse_listen(text)
        except AddressError:
            continue
        if address.is_every_interface:
            address = Address("::1" if ":" in address.host else "127.0.0.1", address.port)
        found.append(address)
    return tuple(sorted(dict.fromkeys(found), key=lambda each: not is_loopback(each.host)))
