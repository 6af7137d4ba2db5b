"""The report of a run: what was tried, what came of it, and on what machine."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from acceptance.display import Display
from acceptance.names import Names
from acceptance.problems import Problem, Unreachable

FORMAT = 1
MOST_LINES = 200
"""Lines of the peer's own log that are kept."""
WORDS = frozenset({"content", "messages", "answer", "prompt"})
"""Fields that hold somebody's words; their lengths alone are kept."""

Result = Literal["proven", "failed", "not tried"]
FAILED: Result = "failed"
PROVEN: Result = "proven"
NOT_TRIED: Result = "not tried"


@dataclass
class Check:
    """One thing that was tried. `claim` is what is true when it is proven."""

    name: str
    claim: str
    result: Result = PROVEN
    seconds: float = 0.0
    said: str = ""
    figures: dict[str, Any] = field(default_factory=dict)


class NotTried(Exception):
    """Raised by a check that this machine cannot make, with why."""


class Report:
    """Grows as the run goes on. Nothing secret and nobody's words ever enter it.

    Args:
        names: hides the key and the sign-in's code, in whatever text they stand.
        display: shows each result as it comes.
        is_rehearsal: nothing of it proves anything.
    """

    def __init__(self, names: Names, display: Display, *, is_rehearsal: bool) -> None:
        self._names = names
        self._display = display
        self._is_rehearsal = is_rehearsal
        self._began = time.time()
        self.checks: list[Check] = []
        self.host: dict[str, Any] = {}
        self.commands: list[dict[str, Any]] = []
        self.log: list[str] = []

    @contextmanager
    def check(self, name: str, claim: str) -> Iterator[Check]:
        """Try one thing: what it raises is its result, and the run goes on."""
        made = Check(name, claim)
        self.checks.append(made)
        began = time.monotonic()
        try:
            yield made
        except NotTried as why:
            made.result, made.said = NOT_TRIED, str(why)
        except (Problem, AssertionError) as why:
            made.result, made.said = FAILED, str(why)
        finally:
            made.seconds = round(time.monotonic() - began, 2)
        self._display.say(made.result, f"{claim} ({made.seconds:.1f} s)")
        if made.said:
            self._display.detail(made.said)

    def command(self, name: str, facts: list[tuple[float, str, dict[str, Any]]]) -> None:
        """Keep how a command went: each fact with its time; of many of one kind the first and the last."""
        told = []
        for index, (seconds, kind, data) in enumerate(facts):
            is_between = 0 < index < len(facts) - 1 and facts[index - 1][1] == kind == facts[index + 1][1]
            if not is_between:
                told.append({"seconds": round(seconds, 2), "kind": kind, "data": without_words(data)})
        self.commands.append({"command": name, "facts": told})

    @property
    def exit_code(self) -> int:
        """0 all was proven; 1 something failed; 3 nothing failed, and something was not tried."""
        results = {check.result for check in self.checks}
        if FAILED in results:
            return 1
        return 3 if NOT_TRIED in results and not self._is_rehearsal else 0

    def write(self, path: Path) -> None:
        """Put it in a file.

        Raises:
            Unreachable: that cannot be written.
        """
        whole = {
            "format": FORMAT,
            "made_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._began)),
            "rehearsal": self._is_rehearsal,
            "host": self.host,
            "checks": [asdict(check) for check in self.checks],
            "commands": self.commands,
            "log": self.log[-MOST_LINES:],
        }
        home = str(Path.home())
        text = json.dumps(self._names.hide(whole), indent=1, ensure_ascii=False)
        try:
            path.write_text(text.replace(home, "~") + "\n", encoding="utf-8")
        except OSError as error:
            raise Unreachable(f"the report cannot be written to {path}: {error.strerror}") from error


def without_words(value: Any) -> Any:
    """A document without what somebody said in it."""
    if isinstance(value, dict):
        return {
            name: f"<{len(item)} characters>"
            if name in WORDS and isinstance(item, str)
            else without_words(item)
            for name, item in value.items()
        }
    return [without_words(item) for item in value] if isinstance(value, list) else value
