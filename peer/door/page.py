"""The page a person opens to approve a sign-in: plain HTML, no script (F10, R22)."""

from html import escape
from pathlib import Path
from string import Template

from actors.registrar import Waiting
from peer.units import describe_duration

_PAGES = Path(__file__).with_name("pages")

_STATES = {
    "pending": (
        "An agent asks to use this machine",
        "Approve it only if you asked for it, and only if the code on the other screen is this one.",
    ),
    "approved": ("Approved", "The agent receives its key with its next question. You can close this page."),
    "used": ("Signed in", "This code was used and its agent has its key. You can close this page."),
    "expired": ("This code has run out", "Codes wait ten minutes. Ask the agent to begin again."),
    "unknown": (
        "No sign-in waits under this code",
        "Look at the code again, or ask the agent to begin again.",
    ),
}


def approval_page(waiting: Waiting | None, endpoint: str) -> str:
    """The whole page for a code, or the form to enter one when `waiting` is None."""
    page = Template((_PAGES / "device.html").read_text(encoding="utf-8"))
    if waiting is None:
        return page.substitute(
            title="Enter the code",
            lead="Enter the code that your agent shows.",
            body=_form(""),
            state="form",
            refresh="",
            host=escape(endpoint),
        )
    title, lead = _STATES[waiting.state]
    body = _details(waiting) if waiting.state == "pending" else _form("")
    if waiting.state in ("approved", "used"):
        body = ""
    # Without script the page itself asks again whether the owner has approved.
    refresh = '<meta http-equiv="refresh" content="5">' if waiting.state in ("pending", "approved") else ""
    return page.substitute(
        title=title, lead=lead, body=body, state=waiting.state, refresh=refresh, host=escape(endpoint)
    )


def _details(waiting: Waiting) -> str:
    rows = [
        ("Connection", waiting.name),
        ("Agent", waiting.agent_label or waiting.client_id),
        ("Software", waiting.client_id),
        ("From", waiting.address or "an unknown address"),
        (
            "Key",
            "a session's: eight hours at most"
            if waiting.lifetime == "session"
            else "until you revoke it, or as long as you say",
        ),
        ("This code", f"waits {describe_duration(waiting.seconds_left)} more"),
    ]
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value or '')}</dd>" for name, value in rows)
    code = escape(waiting.user_code)
    return (
        f'<p class="code" aria-label="code">{code}</p>'
        f"<dl>{listed}</dl>"
        "<h2>To let it in</h2>"
        "<p>On this peer's machine, in a terminal:</p>"
        f"<pre><code>best-peer approve {code}</code></pre>"
        "<p>With nothing more said its key may do everything. To lend less, say what it may do and for how "
        "long:</p>"
        f"<pre><code>best-peer approve {code} --may deploy,prompt --memory 4G --expires 8h</code></pre>"
        "<h2>Not yours?</h2><p>Do nothing. Unapproved, the code has no effect and runs out.</p>"
    )


def _form(value: str) -> str:
    return (
        '<form method="get"><label for="user_code">Code</label>'
        f'<input id="user_code" name="user_code" value="{escape(value)}" placeholder="BCDF-GHJK" '
        'autocomplete="off" autocapitalize="characters" spellcheck="false" maxlength="16" required autofocus>'
        "<button>Look it up</button></form>"
    )
