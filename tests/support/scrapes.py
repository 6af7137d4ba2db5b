"""What a collector reads: a door's metrics, taken apart by the parsers of Prometheus's own client library.

They judge as they read: what is no Prometheus text, or no OpenMetrics, is an error here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_prometheus

if TYPE_CHECKING:
    import httpx

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
