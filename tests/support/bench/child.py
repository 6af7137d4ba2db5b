"""A process that is asked and answers in lines of JSON: a server under test, or what puts load on it.

Each measurement's parts run in processes of their own, so that a client's work is not counted as the
server's; whoever starts one ends it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.bench.figures import NotMeasured

ROOT = Path(__file__).resolve().parents[3]
END_SECONDS = 10.0
MAX_LINE = 64 << 20


def plain_environment(home: Path, **settings: str) -> dict[str, str]:
    """What a child sees: nothing of the caller's own settings."""
    return {
        "HOME": str(home),
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        **settings,
    }


class Child:
    """A process of ours. Made by `start`; a context manager that ends it."""

    def __init__(self, process: subprocess.Popen[bytes], name: str, errors: Path) -> None:
        self._process = process
        self._name = name
        self._errors = errors
        self._received = b""

    @classmethod
    def start(
        cls, arguments: Sequence[str], home: Path, *, environment: Mapping[str, str] | None = None
    ) -> Child:
        """Start `python -m MODULE …`, or a program named by a path; its stderr is kept in `home`."""
        name = arguments[0].rpartition(".")[2].rpartition("/")[2]
        argv = list(arguments) if "/" in arguments[0] else [sys.executable, "-m", *arguments]
        errors = home / f"{name}.err"
        with errors.open("ab") as stderr:
            process = subprocess.Popen(
                argv,
                cwd=ROOT,
                env=plain_environment(home) if environment is None else dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        return cls(process, name, errors)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, within: float = 60.0, **question: Any) -> dict[str, Any]:
        """Send a question and wait for its answer."""
        self.tell(**question)
        return self.answer(within)

    def tell(self, **question: Any) -> None:
        """Send a question; the answer is for later."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise NotMeasured(f"{self._name} has ended: {self._last_words()}") from None

    def answer(self, within: float = 60.0) -> dict[str, Any]:
        """Wait for one line of JSON.

        Raises:
            NotMeasured: it ended, took longer, or says that it failed.
        """
        answer: dict[str, Any] = json.loads(self.line(within))
        if "failed" in answer:
            raise NotMeasured(f"{self._name}: {answer['failed']}")
        return answer

    def line(self, within: float = 60.0) -> str:
        """Wait for one line of text."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + within
        while b"\n" not in self._received:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise NotMeasured(f"{self._name} gave no answer within {within:.0f} s")
            got = os.read(self._process.stdout.fileno(), 1 << 16)
            if not got or len(self._received) > MAX_LINE:
                raise NotMeasured(f"{self._name} has ended: {self._last_words()}")
            self._received += got
        line, _, self._received = self._received.partition(b"\n")
        return line.decode()

    def cpu(self) -> float:
        """Processor time that it says it has used, in seconds."""
        used: float = self.ask(do="cpu")["cpu"]
        return used

    def memory(self) -> int:
        """Memory that it says it holds, in bytes."""
        held: int = self.ask(do="memory")["memory"]
        return held

    def close(self) -> None:
        """Ask it to end, by the end of its input and SIGTERM, and kill it when it does not."""
        process = self._process
        if process.stdin is not None and not process.stdin.closed:
            with suppress(BrokenPipeError):
                process.stdin.close()
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _last_words(self) -> str:
        self._process.wait(END_SECONDS)
        words = self._errors.read_text(errors="replace").strip().splitlines()[-3:]
        return f"code {self._process.returncode}; {' / '.join(words) or 'it said nothing'}"


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used, all its threads, in hundredths of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
