"""The two texts that collectors read: Prometheus 0.0.4 and OpenMetrics 1.0 (F36).

The lines of samples are the same in both; what stands above them is not, and is made once for each series.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from actors.metrics import Samples, Series
from peer.log_text import without_keys

PROMETHEUS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

MOST_LABEL: Final = 256
"""Characters of a label's value; a longer one is cut. Ids, and names of models, fit."""

# Backslash, quote and line feed have a form of their own in both texts; no parser takes the other controls.
_SPECIAL: Final = re.compile('[\\\\"\x00-\x1f\x7f-\x9f\u2028\u2029]')
_ESCAPED: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}
_QUALITY: Final = re.compile(r"(?:0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)")


@attrs.frozen
class _Form:
    """How one series is written: what stands above it in each text, and `line` for `%` with a sample."""

    prometheus: str
    openmetrics: str
    line: str

    @classmethod
    def of(cls, series: Series) -> "_Form":
        name, kind = series.name, series.kind
        # OpenMetrics names the family, without what its kind puts at the end of a sample's name.
        family = name.removesuffix({"counter": "_total", "info": "_info"}.get(kind, ""))
        unit = f"# UNIT {family} {series.unit}\n" if series.unit else ""
        labels = ",".join(f'{label}="%s"' for label in series.labels)
        return cls(
            prometheus=f"# HELP {name} {series.about}\n# TYPE {name} {'gauge' if kind == 'info' else kind}\n",
            openmetrics=f"# TYPE {family} {kind}\n{unit}# HELP {family} {series.about}\n",
            line=f"{name}{{{labels}}} %s\n" if labels else f"{name} %s\n",
        )


class _Values(dict[str, str]):
    """Label values as they are written, each made once a page: most stand on many lines."""

    def __missing__(self, value: str) -> str:
        # A key that somebody gave as the name of a model must not go on from there.
        shown = without_keys(value)[:MOST_LABEL]
        if _SPECIAL.search(shown):
            shown = _SPECIAL.sub(lambda found: _ESCAPED.get(found[0], "\ufffd"), shown)
        self[value] = shown
        return shown


class Writer:
    """Writes pages of the series it was made for."""

    def __init__(self, series: Sequence[Series]) -> None:
        self._forms = {each.name: _Form.of(each) for each in series}

    def page(self, samples: Iterable[Samples], *, openmetrics: bool) -> bytes:
        """One page: each series' own lines, then a line for each of its samples."""
        value_of = _Values().__getitem__
        parts: list[str] = []
        for series, found in samples:
            form = self._forms[series.name]
            line = form.line
            parts.append(form.openmetrics if openmetrics else form.prometheus)
            parts += [line % (*map(value_of, labels), figure) for labels, figure in found]
        if openmetrics:
            parts.append("# EOF\n")
        # A name that is no Unicode at all (a lone surrogate from a driver) is shown, not failed over.
        return "".join(parts).encode("utf-8", "replace")


def wants_openmetrics(accept: str) -> bool:
    """Whether an `Accept` prefers OpenMetrics 1.0 to Prometheus's text (RFC 9110 12.5.1).

    It does when it names it, and no text higher; a wildcard, nothing at all and nothing that is served here
    are answered with Prometheus's text, since a collector that asks for something else reads that best.
    """
    wished = 0.0
    text: dict[str, float] = {}
    for media_range in accept.split(","):
        name, parameters, quality = _media_range(media_range)
        version = parameters.get("version")
        if name == "application/openmetrics-text" and version in (None, "1.0.0"):
            wished = max(wished, quality)
        elif name in ("text/plain", "text/*", "*/*") and version in (None, "0.0.4"):
            text[name] = max(text.get(name, 0.0), quality)
    # The range that is nearest to what is served says what it is worth, not the highest.
    other = next((text[name] for name in ("text/plain", "text/*", "*/*") if name in text), 0.0)
    return wished > 0 and wished >= other


def _media_range(text: str) -> tuple[str, dict[str, str], float]:
    name, *rest = (part.strip().lower() for part in text.split(";"))
    parameters = {
        key.strip(): value.strip().strip('"')
        for key, found, value in (p.partition("=") for p in rest)
        if found
    }
    weight = parameters.pop("q", "1")
    # One that nobody can read asks for nothing.
    return name, parameters, float(weight) if _QUALITY.fullmatch(weight) else 0.0
