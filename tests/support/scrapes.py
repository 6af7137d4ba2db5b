"""What a collector reads: a door's metrics, taken apart by the parsers of Prometheus's own client library.

They judge as they read: what is no Prometheus text, or no OpenMetrics, is an error here.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import attrs
import trio
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_prometheus

import peer.compose
from adapters.gpu.fake import FakeGpu
from tests.support.agents import HANG

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import httpx
    import pytest

    from adapters.gpu.port import Device
    from peer.settings import Settings
    from tests.support.agents import Agent

OPENMETRICS = "application/openmetrics-text"


@attrs.frozen
class Page:
    """One answer: the type of each family, and each series' samples."""

    text: str
    kinds: dict[str, str]
    series: dict[str, dict[frozenset[tuple[str, str]], float]]

    def value(self, name: str, **labels: str) -> float | None:
        """The one sample that has these labels, among others maybe; None where there is none."""
        found = [
            figure for has, figure in self.series.get(name, {}).items() if frozenset(labels.items()) <= has
        ]
        assert len(found) <= 1, f"{name} {labels} stands {len(found)} times"
        return found[0] if found else None

    def labels(self, name: str, label: str) -> list[str]:
        """The values of one label over all samples of a series, as they came."""
        return [dict(has)[label] for has in self.series.get(name, {})]


def read_page(text: str, *, openmetrics: bool = False) -> Page:
    """Take a page apart.

    Raises:
        ValueError: it is none.
    """
    families = list((read_openmetrics if openmetrics else read_prometheus)(text))
    series: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for family in families:
        for sample in family.samples:
            found = series.setdefault(sample.name, {})
            labels = frozenset(sample.labels.items())
            assert labels not in found, f"{sample.name} {sample.labels} stands twice"
            found[labels] = sample.value
    return Page(text, {family.name: family.type for family in families}, series)


def read_answer(answer: httpx.Response) -> Page:
    """The page of an answer, by the type that it says it is of."""
    assert answer.status_code == 200, answer.text
    return read_page(answer.text, openmetrics=answer.headers["content-type"].startswith(OPENMETRICS))


async def scrape(agent: Agent) -> Page:
    """What a key reads now."""
    return read_answer(await agent.get("/metrics"))


async def scrape_until(agent: Agent, holds: Callable[[Page], bool]) -> Page:
    """The first page of which something holds that no event tells of."""
    with trio.fail_after(HANG):
        while not holds(page := await scrape(agent)):  # noqa: ASYNC110 - nothing tells of it
            await trio.sleep(0.01)
    return page


@attrs.define(eq=False)
class HangingGpu(FakeGpu):
    """Cards whose driver may not answer at all."""

    hangs: bool = False

    async def devices(self) -> tuple[Device, ...]:
        """Never, while it hangs."""
        if self.hangs:
            await trio.sleep_forever()
        return await super().devices()


def put_cards(monkeypatch: pytest.MonkeyPatch, *devices: Device) -> HangingGpu:
    """Have the doors of a test serve on these devices."""
    made = HangingGpu(devices)

    @asynccontextmanager
    async def opened(settings: Settings) -> AsyncIterator[FakeGpu]:
        await trio.lowlevel.checkpoint()
        yield made

    monkeypatch.setattr(peer.compose, "open_gpu", opened)
    return made
