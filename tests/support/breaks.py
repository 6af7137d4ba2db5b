"""Ports that raise what no adapter says it raises, at a call that a test names."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import attrs
import trio

from tests.support.houses import open_house

if TYPE_CHECKING:
    from pathlib import Path


class Bug(Exception):
    """What no adapter says it raises."""


@attrs.define(eq=False)
class Breaks:
    """Counts calls to ports, and lets those raise that it was told to."""

    at: int | None = None
    """The number of the one call that raises."""
    always: str | None = None
    """The method that raises whenever it is called."""
    after: bool = False
    """Raise once the call has had its effect, instead of before."""
    calls: list[str] = attrs.field(factory=list)

    def around(self, inner: Any) -> Any:
        """The same port, with this before it."""
        return _Port(inner, self)

    def should(self, name: str) -> bool:
        self.calls.append(name)
        return len(self.calls) - 1 == self.at or name == self.always


class _Port:
    def __init__(self, inner: Any, breaks: Breaks) -> None:
        self._inner = inner
        self._breaks = breaks

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found
        breaks = self._breaks
        if not inspect.iscoroutinefunction(found):

            def call(*args: Any, **kwargs: Any) -> Any:
                if breaks.should(name):
                    raise Bug(name)
                return found(*args, **kwargs)

            return call

        async def wait(*args: Any, **kwargs: Any) -> Any:
            breaking = breaks.should(name)
            if breaking and not breaks.after:
                await trio.lowlevel.checkpoint()
                raise Bug(name)
            result = await found(*args, **kwargs)
            if breaking:
                raise Bug(name)
            return result

        return wait


def house_with(breaks: Breaks, folder: Path) -> Any:
    return open_house(
        folder,
        wrap_runtime=breaks.around,
        wrap_gpu=breaks.around,
        engines=lambda engine: {"llamacpp": breaks.around(engine)},
    )
