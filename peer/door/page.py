"""The page a person opens to approve a sign-in: plain HTML, no script (F10, R22).

It only shows: who approves does so on the machine itself. While somebody may still act, the page looks again
by itself, so that it ends on what became of the code.
"""

from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Final

import attrs

from actors.codes import is_loopback
from actors.registrar import Waiting
from peer.units import describe_duration

PENDING_SECONDS: Final = 10
"""Between two looks while nobody has approved: rare enough to copy the command in peace."""
APPROVED_SECONDS: Final = 5
"""Between two looks while the agent is about to fetch its key."""

_PAGE: Final = Path(__file__).with_name("pages") / "device.html"
_STEPS: Final = ("Asked", "Approved", "Signed in")
_CHECK: Final = '<path d="M5 12.5l4.5 4.5L19 7.5"/>'
_CLOCK: Final = '<circle cx="12" cy="12" r="8.5"/><path d="M12 7v5.2l3.2 2"/>'
_CROSS: Final = '<path d="M7 7l10 10M17 7L7 17"/>'
_QUESTION: Final = '<path d="M8 8.6a4 4 0 1 1 5.9 3.5c-1.2.6-1.9 1.4-1.9 2.9M12 19.2v.1"/>'


@attrs.frozen
class _Look:
    """What the page says of a state: `step` of the three that is under way, None where there is none."""

    title: str
    lead: str
    step: int | None = None
    icon: str = ""
    refresh: int | None = None
    asks_for_a_code: bool = False


_LOOKS: Final = {
    "form": _Look("Enter the code", "Your agent shows a code of eight letters.", asks_for_a_code=True),
    "pending": _Look(
        "An agent asks to use this machine",
        "Let it in only if you asked for it, and only if the code it shows you is this one.",
        step=0,
        refresh=PENDING_SECONDS,
    ),
    "approved": _Look(
        "Approved",
        "The agent gets its key when it next asks. You can close this page.",
        step=1,
        icon=_CHECK,
        refresh=APPROVED_SECONDS,
    ),
    "used": _Look("Signed in", "The agent has its key. You can close this page.", step=2, icon=_CHECK),
    "denied": _Look(
        "Turned away",
        "The owner of this machine denied this sign-in, and its agent is told so.",
        icon=_CROSS,
        asks_for_a_code=True,
    ),
    "expired": _Look(
        "This code has run out",
        "A code waits ten minutes. Ask the agent to begin again, and enter its new one.",
        icon=_CLOCK,
        asks_for_a_code=True,
    ),
    "unknown": _Look(
        "No sign-in waits under this code",
        "Look at it again, letter by letter, or ask the agent to begin again.",
        icon=_QUESTION,
        asks_for_a_code=True,
    ),
}


def approval_page(waiting: Waiting | None, endpoint: str) -> str:
    """The whole page for a code, or the form to enter one when `waiting` is None."""
    state = "form" if waiting is None else waiting.state
    look = _LOOKS[state]
    body = _form() if look.asks_for_a_code else ""
    if waiting is not None and state == "pending":
        body = _details(waiting)
    feet = []
    if look.icon is not _CHECK:
        feet.append("Nothing is approved here: that is done on the machine itself.")
    if look.refresh is not None:
        feet.append(f"This page looks again by itself every {look.refresh} seconds.")
    return _template().substitute(
        title=look.title,
        lead=look.lead,
        body=body,
        state=state,
        steps="" if look.step is None else _steps(look.step),
        mark=_mark(look),
        refresh="" if look.refresh is None else f'<meta http-equiv="refresh" content="{look.refresh}">',
        foot=" ".join(feet),
        host=escape(endpoint),
    )


@cache
def _template() -> Template:
    return Template(_PAGE.read_text(encoding="utf-8"))


def _steps(now: int) -> str:
    items = []
    for number, name in enumerate(_STEPS):
        if number == now:
            items.append(f'<li class="now" aria-current="step">{name}</li>')
        else:
            items.append(f'<li class="done">{name}</li>' if number < now else f"<li>{name}</li>")
    return f"<ol>{''.join(items)}</ol>"


def _mark(look: _Look) -> str:
    if not look.icon:
        return ""
    tone = "mark" if look.icon is _CHECK else "mark off"
    return (
        f'<div class="{tone}"><svg viewBox="0 0 24 24" fill="none" stroke="currentColor" stroke-width="2" '
        f'stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">{look.icon}</svg></div>'
    )


def _details(waiting: Waiting) -> str:
    address = waiting.address or "an unknown address"
    rows = {
        "Agent": waiting.agent_label or "does not say",
        "Connection": waiting.name or "",
        "Software": waiting.client_id or "",
        "Comes from": f"{address} (this machine)" if is_loopback(waiting.address) else address,
        "Asks for": "a key for a session, eight hours at most"
        if waiting.lifetime == "session"
        else "a lasting key, good until it is revoked",
    }
    listed = "".join(f"<dt>{name}</dt><dd>{escape(value)}</dd>" for name, value in rows.items())
    code = escape(waiting.user_code)
    left = describe_duration(max(60, waiting.seconds_left // 60 * 60))
    return (
        f'<p class="code">{code}</p><p class="quiet">good for {left} more</p>'
        f"<dl>{listed}</dl>"
        "<h2>To let it in</h2>"
        "<p>In a terminal on the machine that runs this peer:</p>"
        f"{_command('approve', code)}"
        "<p>So its key may do everything. To lend a part of the machine, for a while:</p>"
        f"{_command('approve', code, '--may deploy,prompt', '--memory 4G', '--expires 8h')}"
        '<p class="note"><b>Not yours?</b> Do nothing: until it is approved the code has no effect, and it '
        "runs out by itself. To turn its agent away at once:</p>"
        f"{_command('deny', code)}"
    )


def _command(*words: str) -> str:
    """A command line that breaks between its words alone."""
    spans = " ".join(f"<span>{word}</span>" for word in ("best-peer", *words))
    return f"<pre><code>{spans}</code></pre>"


def _form() -> str:
    return (
        '<form method="get"><label for="user_code">Code</label><div class="row">'
        '<input id="user_code" name="user_code" placeholder="BCDF-GHJK" autocomplete="off" '
        'autocapitalize="characters" spellcheck="false" maxlength="16" required autofocus>'
        "<button>Look it up</button></div></form>"
    )
