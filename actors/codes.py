"""Sign-ins that wait for their approval: the device flow's codes and their ceilings (F10, F11; RFC 8628)."""

import hashlib
import ipaddress
import secrets
from collections.abc import Callable
from math import ceil
from typing import TYPE_CHECKING, Literal

import attrs

if TYPE_CHECKING:  # the command line reads codes, and needs neither the log nor Trio for that
    from actors.log.journal import Batch
    from actors.state.keys import KeyRecord

LIFETIME_SECONDS = 600
"""A code waits ten minutes for its approval."""

INTERVAL_SECONDS = 5
"""How often a device may poll; each poll that comes sooner makes it wait this much longer (RFC 8628 3.5)."""

PER_CLIENT, PER_ADDRESS, IN_ALL = 5, 16, 64
"""Codes that may wait: from one client at one address, from one address, from everywhere but this machine."""

FROM_LOOPBACK = 1024
"""Codes of this machine's own that may wait, counted under none of the above: a proxy on it would make one
address of everybody, and what runs on it could shut everybody out. Three megabytes at most."""

REMEMBERED = 1024
"""Ended codes kept, so that a late approval or poll learns whether its code was used, denied or ran out."""

DEVICE_CODE_PREFIX = "bpd_"
"""What tells a device code apart from a key, and what the log knows one by."""

_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"  # no vowels: no words, and nothing that reads as a digit (RFC 8628 6.1)

State = Literal["pending", "approved", "used", "denied", "expired"]
Lifetime = Literal["durable", "session"]


class TooManyCodes(Exception):
    """Raised when a ceiling is reached; `wait_seconds` until the oldest code in the way runs out."""

    def __init__(self, wait_seconds: int) -> None:
        super().__init__(f"too many sign-ins wait for approval; try again in {wait_seconds} s")
        self.wait_seconds = wait_seconds


def digest(secret: str) -> str:
    """SHA-256 of a secret of 256 random bits, which needs no salt and no slow hash."""
    return hashlib.sha256(secret.encode()).hexdigest()


def normal_user_code(text: str) -> str:
    """A code as a person may type it, in its own form `BCDF-GHJK`; '' when it can be none."""
    letters = "".join(c for c in text[:64].upper() if c.isalnum())
    if len(letters) != 8 or not letters.isascii():
        return ""
    return f"{letters[:4]}-{letters[4:]}"


@attrs.define
class Code:
    """One sign-in that was begun. Times are seconds on the caller's monotonic clock.

    Args:
        device_digest: of the code the device polls with; that code itself is never kept.
        user_code: what the person approves.
        group: what its address is counted as; None for this machine.
        name: the connection's name.
        approval: what its approval waits in for the disk.
    """

    device_digest: str
    user_code: str
    client_id: str
    address: str | None
    group: str | None
    name: str
    agent_label: str | None
    lifetime: Lifetime
    expires_at: float
    state: State = "pending"
    approval: "Batch[KeyRecord] | None" = None
    interval: float = INTERVAL_SECONDS
    last_poll: float | None = None

    def settle(self) -> None:
        """An approval that the disk did not keep is none, though whoever approved did not wait to hear it."""
        if self.state == "approved" and self.approval is not None and self.approval.error is not None:
            self.state = "pending"

    def must_slow_down(self, now: float) -> bool:
        """Note a poll; whether it came too soon, which makes the next wait longer."""
        early = self.last_poll is not None and now - self.last_poll < self.interval
        self.last_poll = now
        if early:
            self.interval += INTERVAL_SECONDS
        return early


class Codes:
    """Waiting and lately ended sign-ins, bounded by the ceilings."""

    def __init__(self, now: Callable[[], float]) -> None:
        """Args:

        now: a monotonic clock, in seconds.
        """
        self._now = now
        self._by_device: dict[str, Code] = {}
        self._by_user: dict[str, Code] = {}
        self._ended: dict[str, State] = {}
        """By user code, and by device digest: how those ended that wait no more."""

    def begin(
        self,
        *,
        client_id: str,
        address: str | None,
        name: str,
        agent_label: str | None,
        lifetime: Lifetime,
    ) -> tuple[str, Code]:
        """A new sign-in: its device code, told once, and the rest.

        Raises:
            TooManyCodes: a ceiling is reached.
        """
        self._expire()
        group = None if is_loopback(address) else address_group(address)
        self._check_ceilings(client_id, group)
        device_code = DEVICE_CODE_PREFIX + secrets.token_urlsafe(32)
        user_code = self._new_user_code()
        code = Code(
            device_digest=digest(device_code),
            user_code=user_code,
            client_id=client_id,
            address=address,
            group=group,
            name=name,
            agent_label=agent_label,
            lifetime=lifetime,
            expires_at=self._now() + LIFETIME_SECONDS,
        )
        self._by_device[code.device_digest] = code
        self._by_user[user_code] = code
        return device_code, code

    def by_device(self, device_digest: str) -> Code | None:
        """The sign-in that waits for a device code."""
        self._expire()
        return _settled(self._by_device.get(device_digest))

    def by_user(self, user_code: str) -> Code | None:
        """The sign-in that waits under a user code."""
        self._expire()
        return _settled(self._by_user.get(user_code))

    def waiting(self) -> tuple[Code, ...]:
        """Sign-ins that wait, oldest first."""
        self._expire()
        for code in self._by_device.values():
            code.settle()
        return tuple(self._by_device.values())

    def ended(self, user_code_or_device_digest: str) -> State | None:
        """How a code ended that waits no more, while it is remembered."""
        return self._ended.get(user_code_or_device_digest)

    def end(self, code: Code, state: State) -> None:
        """Take a sign-in out."""
        code.state = state
        self._by_device.pop(code.device_digest, None)
        self._by_user.pop(code.user_code, None)
        self._remember(code.user_code, code.device_digest, state)

    def deny(self, user_code: str, device_digest: str) -> None:
        """Turn a sign-in away: one that waits, that was redeemed, or that was approved before a restart."""
        code = self._by_device.get(device_digest)
        if code is None:
            self._remember(user_code, device_digest, "denied")
        else:
            self.end(code, "denied")

    def _remember(self, user_code: str, device_digest: str, state: State) -> None:
        self._ended[user_code] = self._ended[device_digest] = state
        while len(self._ended) > 2 * REMEMBERED:
            del self._ended[next(iter(self._ended))]

    def __len__(self) -> int:
        return len(self._by_device)

    def _expire(self) -> None:
        # All wait equally long, and stand in the order they began.
        now = self._now()
        while self._by_device and now >= (oldest := next(iter(self._by_device.values()))).expires_at:
            self.end(oldest, "expired")

    def _check_ceilings(self, client_id: str, group: str | None) -> None:
        waiting = self._by_device.values()
        if group is None:
            self._check([c for c in waiting if c.group is None], FROM_LOOPBACK)
            return
        self._check([c for c in waiting if c.group is not None], IN_ALL)
        same = [c for c in waiting if c.group == group]
        self._check(same, PER_ADDRESS)
        self._check([c for c in same if c.client_id == client_id], PER_CLIENT)

    def _check(self, waiting: list[Code], most: int) -> None:
        if len(waiting) >= most:
            raise TooManyCodes(max(1, ceil(min(c.expires_at for c in waiting) - self._now())))

    def _new_user_code(self) -> str:
        while True:
            letters = "".join(secrets.choice(_LETTERS) for _ in range(8))
            user_code = f"{letters[:4]}-{letters[4:]}"
            if user_code not in self._by_user and user_code not in self._ended:
                return user_code


def _settled(code: Code | None) -> Code | None:
    if code is not None:
        code.settle()
    return code


def address_group(address: str | None) -> str:
    """What an address is counted as: itself, an IPv6 one by its /64, unknown ones together."""
    parsed = _parsed(address)
    if parsed is None:
        return ""
    if parsed.version == 6:
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


def is_loopback(address: str | None) -> bool:
    """Whether a connection comes from this machine."""
    parsed = _parsed(address)
    return parsed is not None and parsed.is_loopback


def _parsed(address: str | None) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        parsed = ipaddress.ip_address((address or "").partition("%")[0])
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if parsed.version == 6 else None
    return mapped or parsed
