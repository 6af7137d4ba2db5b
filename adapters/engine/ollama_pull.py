"""A model fetched through an Ollama that does not have it yet (F20).

Ollama tells of a pull in lines, the first of which makes the answer a 200: what goes wrong later is a line as
well, and only `success` is success. Its lines come several times a second whether anything moves or not, so
that silence is a pull of which no line says anything new.
"""

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs
import trio

from adapters.engine.json_http import JsonHttp, shown
from adapters.engine.ollama_words import pull_fault
from adapters.engine.port import EngineFault, EngineUnreachable, ModelNotPulled, Progress

logger = logging.getLogger("best_peer.engine")

SILENT_SECONDS: Final = 300.0
"""How long a pull may say nothing new."""
VERIFIED_BYTES_PER_SECOND: Final = 50_000_000
"""How fast a model's digests are checked on a slow disk: so much longer it may be silent meanwhile."""
MOST_PULLS: Final = 3
"""A pull that broke off, or that Ollama gave up, is resumed twice at most."""
PAUSES_SECONDS: Final = (2.0, 10.0)
"""Before the first and the second time."""
MOST_PERCENT: Final = 99
MAX_LAYERS: Final = 4096


@attrs.define
class _Parts:
    """What is known of a pull: how far each digest is, and how large it is."""

    totals: dict[str, int] = attrs.field(factory=dict)
    done: dict[str, int] = attrs.field(factory=dict)
    said: set[str] = attrs.field(factory=set)
    is_verifying: bool = False

    def note(self, line: dict[str, Any]) -> bool:
        """Take in a line; whether it says anything new. What falls back is nothing new."""
        status, digest = str(line.get("status", ""))[:200], line.get("digest")
        moved = status not in self.said and len(self.said) < MAX_LAYERS
        if moved:
            self.said.add(status)
        # Anything that comes after it would have said so.
        self.is_verifying = status.startswith("verifying")
        if not isinstance(digest, str) or len(self.totals) >= MAX_LAYERS:
            return moved
        total, done = _size(line.get("total")), _size(line.get("completed"))
        moved = moved or done > self.done.get(digest, 0)
        self.totals[digest], self.done[digest] = total, min(done, total)
        return moved

    @property
    def percent(self) -> int | None:
        """Over all that is known of, 99 at most; None while no size is known."""
        total = sum(self.totals.values())
        if not total:
            return None
        return min(MOST_PERCENT, sum(self.done.values()) * 100 // total)

    @property
    def silence_seconds(self) -> float:
        """How long it may be silent now."""
        if not self.is_verifying:
            return SILENT_SECONDS
        return SILENT_SECONDS + sum(self.totals.values()) / VERIFIED_BYTES_PER_SECOND


@attrs.define(eq=False)
class Pull:
    """One model's way into an Ollama.

    Args:
        http: asks.
        base_url: the Ollama.
        model: the model's name.
        is_held: whether the Ollama has the model by now; asked when a pull has ended in any way.
    """

    http: JsonHttp
    base_url: str
    model: str
    is_held: Callable[[], Awaitable[bool]]

    async def run(self, progress: Progress) -> None:
        """Pull until the Ollama has the model. The whole is bounded by the caller.

        Raises:
            ModelNotFound, ModelUnusable, ModelNotPulled, EngineUnreachable: it will not have it.
        """
        for attempt in range(1, MOST_PULLS + 1):
            broken = await self._once(progress)
            if broken is None or await self.is_held():
                return
            if attempt == MOST_PULLS:
                raise broken
            logger.info("the pull of %s is resumed: %s", self.model, broken.reason)
            await trio.sleep(PAUSES_SECONDS[attempt - 1])

    async def _once(self, progress: Progress) -> EngineFault | None:
        """Pull; why it broke off, where it may be resumed. None once all of it came."""
        parts = _Parts()
        # Also for the first line: Ollama asks the registry before it answers at all.
        with trio.move_on_after(parts.silence_seconds) as silence:
            try:
                return await self._follow(parts, progress, silence)
            except EngineUnreachable as fault:
                return _broke_off(fault.reason)
        if await self.is_held():
            return None
        raise ModelNotPulled(
            f"the pull of the model stalled{_where(parts)}: nothing new for {parts.silence_seconds:.0f} s",
            fix="deploy the model again; if it stalls again, look at this machine's way to Ollama's registry",
        )

    async def _follow(
        self, parts: _Parts, progress: Progress, silence: trio.CancelScope
    ) -> EngineFault | None:
        question = {"model": self.model, "stream": True}
        async with self.http.ask_for_lines(self.base_url, "/api/pull", question) as reply:
            async for line in reply:
                if not isinstance(line, dict):
                    return _broke_off("it says what is no JSON object")
                if "error" in line:
                    fault, may_be_resumed = pull_fault(shown(str(line["error"])))
                    if may_be_resumed:
                        return fault
                    raise fault
                if line.get("status") == "success":
                    return None
                if parts.note(line):
                    silence.deadline = trio.current_time() + parts.silence_seconds
                # Also when it fell back: that is how far it is.
                progress(parts.percent)
        return _broke_off(f"the engine ended it with status {reply.status} and no word of success")


def _size(value: object) -> int:
    """A size that Ollama gave, 0 where it left it out or it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return 0
    return max(0, int(value))


def _where(parts: _Parts) -> str:
    percent = parts.percent
    return f" at {percent} %" if percent is not None else ""


def _broke_off(words: str) -> ModelNotPulled:
    return ModelNotPulled(
        f"the pull of the model broke off: {words}",
        fix="deploy the model again; if that fails too, look at this machine's way to the model's registry",
    )
