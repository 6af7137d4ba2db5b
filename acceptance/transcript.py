"""The transcript: every request and answer, every fact as it came, in Markdown that can be compared."""

from pathlib import Path
from typing import Any

from acceptance.names import Names
from acceptance.problems import Unreachable
from acceptance.shorten import pretty, shorten


class Transcript:
    """Written as the run goes on; nothing secret ever enters it."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self._parts: list[str] = []
        self._sections = 0

    def title(self, text: str) -> None:
        """The first line."""
        self._parts.append(f"# {text}")

    def section(self, text: str) -> None:
        """A numbered heading."""
        self._sections += 1
        self._parts.append(f"## {self._sections}. {text}")

    def say(self, text: str) -> None:
        """A paragraph."""
        self._parts.append(text)

    def table(self, heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
        """A table; cells may hold anything."""
        lines = [heads, tuple("---" for _ in heads), *rows]
        self._parts.append("\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines))

    def quote(self, text: str) -> None:
        """Words of somebody else."""
        self._parts.append("\n".join(f"> {line}".rstrip() for line in text.splitlines() or [""]))

    def request(
        self, method: str, url: str, *, sent: Any = None, with_key: bool = False, note: str = ""
    ) -> None:
        """What was asked."""
        how = [part for part in ("with the key" if with_key else "", note) if part]
        self._parts.append(f"**`{method} {url}`**" + (f" ({', '.join(how)})" if how else ""))
        if sent is not None:
            self._json(self.names.hide(sent))

    def answer(self, status: int, content_type: str, body: Any) -> None:
        """What came back."""
        kind = f", `{content_type}`" if content_type else ""
        self._parts.append(f"answered {status}{kind}:" if body is not None else f"answered {status}{kind}")
        if body is not None:
            self._json(shorten(self.names.hide(body)))

    def fact(self, seconds: float, kind: str, data: Any) -> None:
        """One fact, with the seconds since its command was sent."""
        self._parts.append(f"- +{seconds:.1f} s **{kind}**")
        self._json(shorten(self.names.hide(data)), "  ")

    def text(self) -> str:
        """All of it, as it may be shown."""
        return self.names.apply("\n\n".join(self._parts)) + "\n"

    def write(self, path: Path) -> None:
        """Put it in a file; raises Unreachable when that cannot be written."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.text(), encoding="utf-8")
        except OSError as error:
            raise Unreachable(f"the transcript cannot be written to {path}: {error.strerror}") from error

    def _json(self, value: Any, indent: str = "") -> None:
        lines = pretty(value).splitlines()
        self._parts.append("\n".join(f"{indent}{line}" for line in ("```json", *lines, "```")))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
