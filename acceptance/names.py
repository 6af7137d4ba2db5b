"""Names for what differs from run to run, so that two transcripts can be compared, and for what is secret."""

import re
from typing import Any

OPAQUE = re.compile(r"([a-z]{1,8})-[A-Za-z0-9_-]{16,64}")
"""How services write an id that only they can read: a short kind, a hyphen, and chance."""
TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:Z|[+-]\d{2}:\d{2})")


def is_opaque(value: Any) -> bool:
    """Whether a value looks like such an id."""
    return isinstance(value, str) and OPAQUE.fullmatch(value) is not None


class Names:
    """Replaces secrets, ids, times and the door's own address by names, in any text."""

    def __init__(self) -> None:
        self._named: dict[str, str] = {}
        self._secrets: dict[str, str] = {}
        self._count: dict[str, int] = {}

    def keep_secret(self, value: str, name: str) -> None:
        """Never show this value from now on; raises ValueError for one too short to be told from words."""
        if len(value) < 6:
            raise ValueError(f"{name} has only {len(value)} characters: too short to be kept out of a text")
        self._secrets[value] = f"<{name}>"

    def call(self, value: str, name: str) -> None:
        """Show `name` in place of this value."""
        if value:
            self._named.setdefault(value, name)

    def number(self, value: str, kind: str) -> None:
        """Show `<kind n>` in place of this value, counted per kind."""
        if value and value not in self._named:
            self._count[kind] = self._count.get(kind, 0) + 1
            self._named[value] = f"<{kind} {self._count[kind]}>"

    def learn(self, value: Any) -> None:
        """Number every opaque id in a document."""
        if isinstance(value, dict):
            for item in value.values():
                self.learn(item)
        elif isinstance(value, list):
            for item in value:
                self.learn(item)
        elif isinstance(value, str) and (found := OPAQUE.fullmatch(value)):
            self.number(value, found[1])

    def hide(self, value: Any) -> Any:
        """The same document without secrets; done before anything is cut, so that no half of one stays."""
        if isinstance(value, dict):
            return {self._hidden(name): self.hide(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.hide(item) for item in value]
        return self._hidden(value) if isinstance(value, str) else value

    def apply(self, text: str) -> str:
        """The text as it may be shown: longest values first, so that no part of one is left standing."""
        text = self._hidden(text)
        for value in sorted(self._named, key=len, reverse=True):
            text = text.replace(value, self._named[value])
        return TIME.sub("<time>", text)

    def _hidden(self, text: str) -> str:
        for value in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(value, self._secrets[value])
        return text
