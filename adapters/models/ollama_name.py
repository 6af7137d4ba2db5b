"""Names of Ollama's models: `model`, `model:tag`, `namespace/model`, `host/namespace/model:tag`."""

import re
from typing import Final

import attrs

from adapters.models.faults import BadName

DEFAULT_HOST: Final = "registry.ollama.ai"
DEFAULT_NAMESPACE: Final = "library"
DEFAULT_TAG: Final = "latest"
MAX_NAME: Final = 256
"""Characters of a whole name."""

# As Ollama has them, and each begins with a letter, a digit or `_`: none is an option, `.` or `..`.
_HOST: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,349}")
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,79}")
_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}")
_CLOUD: Final = "cloud"


@attrs.frozen
class OllamaName:
    """A model's whole name; what was left out is Ollama's default. Letters count alike, large or small."""

    host: str
    namespace: str
    model: str
    tag: str

    @property
    def short(self) -> str:
        """As Ollama lists it: without host and namespace where they are the default, always with a tag."""
        named = f"{self.model}:{self.tag}"
        if self.host.lower() != DEFAULT_HOST:
            return f"{self.host}/{self.namespace}/{named}"
        if self.namespace.lower() != DEFAULT_NAMESPACE:
            return f"{self.namespace}/{named}"
        return named

    @property
    def parts(self) -> tuple[str, str, str, str]:
        """Where its manifest lies under `manifests/`, a folder each and the file."""
        return self.host, self.namespace, self.model, self.tag

    @property
    def is_of_the_cloud(self) -> bool:
        """Whether another's machines would answer: what is asked would leave this one."""
        return self.tag.lower() == _CLOUD or self.tag.lower().endswith(f"-{_CLOUD}")

    def is_called(self, text: object) -> bool:
        """Whether a name that Ollama says is this model's."""
        if not isinstance(text, str):
            return False
        try:
            other = parse_name(text)
        except BadName:
            return False
        return [part.lower() for part in other.parts] == [part.lower() for part in self.parts]


def parse_name(text: str) -> OllamaName:
    """A model's name as a person writes it.

    Raises:
        BadName: it is none.
    """
    rest, tag = text, DEFAULT_TAG
    if text.rfind(":") > text.rfind("/"):
        rest, _, tag = text.rpartition(":")
    before, _, model = rest.rpartition("/")
    host, _, namespace = before.rpartition("/")
    name = OllamaName(host or DEFAULT_HOST, namespace or DEFAULT_NAMESPACE, model, tag)
    patterns = (_HOST, _NAMESPACE, _PART, _PART)
    is_whole = rest.count("/") <= 2 and not rest.startswith("/") and "//" not in rest
    if len(text) > MAX_NAME or not is_whole:
        raise _bad(text)
    if not all(pattern.fullmatch(part) for pattern, part in zip(patterns, name.parts, strict=True)):
        raise _bad(text)
    return name


def _bad(text: str) -> BadName:
    shown = "".join(c if c.isprintable() else " " for c in text[:128])
    return BadName(
        f"{shown} is no name of an Ollama model", fix="write it as model, model:tag or namespace/model"
    )
