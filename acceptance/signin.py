"""Signing in by the device flow (RFC 8628): show a link and a code, wait for a person, receive a key."""

import shlex
import subprocess
import time
from dataclasses import dataclass

from acceptance.discovery import Surface
from acceptance.display import Display
from acceptance.names import Names
from acceptance.problems import Faulty, Refused, Unreachable
from acceptance.wire import Wire

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
CLIENT = "manifest-alone"
SLOWER_SECONDS = 5.0
"""What `slow_down` adds to the interval (RFC 8628, 3.5)."""
APPROVE_SECONDS = 60.0
KEY = "key"


@dataclass(frozen=True)
class SignedIn:
    """What the service calls this sign-in."""

    name: str
    seconds: int | None


def sign_in(
    wire: Wire, surface: Surface, display: Display, names: Names, *, connection: str, approve_with: str | None
) -> SignedIn | None:
    """Get a key and let the wire carry it; None where the service asks for none.

    Args:
        wire: carries the key afterwards.
        surface: whose authentication block says how.
        display: shows the link and the code.
        names: told what to call the code.
        connection: the name of the connection, one word.
        approve_with: a command of the caller's that approves, `{code}` standing for the code; None to wait
            for a person.

    Raises:
        Refused: the person said no, or nobody said anything in time.
        Faulty: the block or an answer is not what the protocol says.
        Unreachable: the caller's command cannot be run or failed.
    """
    block = surface.authentication
    if block["type"] == "none":
        return None
    begun = wire.post_form(
        _member(block, "deviceAuthorizationUrl"),
        # A session key: this agent has no place to keep a lasting one.
        {"client_id": CLIENT, "connection": connection, "credential_lifetime": "session"},
        secret={"device_code": "device code"},
    )
    if begun.status != 200:
        raise Faulty(f"sign-in was not begun: {begun.status} {begun.body}")
    code = str(begun.member("user_code"))
    names.call(code, "<code>")
    link = str(begun.body.get("verification_uri_complete") or begun.member("verification_uri"))
    display.say("sign in", f"code {code}, to be approved at {link}")
    if approve_with is not None:
        _approve(approve_with, code)
    return _poll(wire, surface, display, begun.body)


def _poll(wire: Wire, surface: Surface, display: Display, begun: dict[str, object]) -> SignedIn:
    interval = float(str(begun.get("interval", 5)))
    ends = time.monotonic() + float(str(begun.get("expires_in", 900)))
    form = {"grant_type": DEVICE_GRANT, "device_code": str(begun["device_code"]), "client_id": CLIENT}
    while True:
        answer = wire.post_form(
            _member(surface.authentication, "tokenUrl"), form, secret={"access_token": KEY}
        )
        if answer.status == 200:
            header, prefix = _carrier(surface, answer.body)
            wire.carry(header, prefix + str(answer.member("access_token")), surface.endpoint)
            seconds = answer.body.get("expires_in")
            return SignedIn(str(answer.member("name")), int(seconds) if seconds is not None else None)
        error = answer.body.get("error") if isinstance(answer.body, dict) else None
        if error not in {"authorization_pending", "slow_down", "temporarily_unavailable"}:
            raise Refused(f"no key was given: {answer.body}")
        if error == "slow_down":
            interval += SLOWER_SECONDS
        if time.monotonic() + interval > ends:
            raise Refused("nobody approved the code before it ran out; start again, and approve it in time")
        with display.waiting("waiting for the approval"):
            time.sleep(interval)


def _carrier(surface: Surface, token: dict[str, object]) -> tuple[str, str]:
    """The header the key goes in, and what stands before it there."""
    block = surface.authentication
    if block["type"] == "apiKey" and block.get("in", "header") == "header":
        return str(token.get("auth_header") or block.get("scheme") or "X-Api-Key"), ""
    if block["type"] in {"bearer", "oauth2"}:
        return "Authorization", "Bearer "
    raise Faulty(f"a key in a {block.get('in')} parameter would stand in logs: this agent does not send it")


def _approve(command: str, code: str) -> None:
    """Run the caller's command; its words are the caller's and not the agent's."""
    argv = [part.replace("{code}", code) for part in shlex.split(command)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=APPROVE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unreachable(f"{argv[0]} could not approve the code: {error}") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise Unreachable(f"{shlex.join(argv)} ended with {done.returncode}: {said[-500:]}")


def _member(block: dict[str, object], name: str) -> str:
    value = block.get(name)
    if not isinstance(value, str):
        raise Faulty(f"the authentication block names no {name}: a key must be had in another way")
    return value
