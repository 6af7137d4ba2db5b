"""A store of Ollama's models on this machine: `manifests/` and `blobs/`, as `ollama pull` leaves them (F20).

It is read and never written. Where it lies is its owner's to know: `StoreUnreadable`, which stops the start,
says it, and nothing that a tenant may read does.
"""

import hashlib
import json
import logging
import os
import re
import stat
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from adapters.models.faults import ModelFault
from adapters.models.gguf import Facts, read_facts
from adapters.models.ollama_name import OllamaName

logger = logging.getLogger("best_peer.models")

NAMED: Final = "the operator's model store"
"""What everybody but its owner reads instead of its path."""
MODEL: Final = "application/vnd.ollama.image.model"
MAX_MANIFEST: Final = 1024 * 1024
MAX_CONFIG: Final = 1024 * 1024
MAX_LAYERS: Final = 4096
MAX_ENTRIES: Final = 10_000
"""Entries of a folder that are looked through for a name of other letters, large or small."""

_DIGEST: Final = re.compile(r"sha256[:-]([0-9a-f]{64})")


class StoreUnreadable(ModelFault):
    """Raised when the store cannot be read. Raised at start it names the path, which is its owner's alone."""

    code = "MODEL_STORE_UNREADABLE"


@attrs.frozen
class StoredModel:
    """A model that the store holds whole.

    Args:
        name: what it was looked up by.
        digest: its manifest's, as Ollama shows it.
        size_bytes: of all its layers.
        weights_bytes: of those that are loaded: the model and what is read beside it.
        family: what Ollama calls its kind, `llama`, `bert`, ...; empty where it does not say.
        is_remote: another's machines answer for it.
        facts: what its weights say of themselves; None where they are no GGUF file.
    """

    name: OllamaName
    digest: str
    size_bytes: int
    weights_bytes: int
    family: str
    is_remote: bool
    facts: Facts | None


@attrs.frozen
class _Layer:
    kind: str
    blob: Path
    size_bytes: int


@attrs.define(eq=False)
class OllamaStore:
    """Ollama's library at one place, the same for the peer and for the container engine.

    Args:
        path: the folder that holds `blobs/` and `manifests/`, absolute.

    Raises:
        StoreUnreadable: it is not there, is no such store, or may not be read. Blocks for a moment.
    """

    path: Path
    _threads: trio.CapacityLimiter = attrs.field(
        factory=lambda: trio.CapacityLimiter(2), init=False, repr=False
    )

    def __attrs_post_init__(self) -> None:
        """Look whether it can be read at all."""
        if not self.path.is_absolute():
            raise StoreUnreadable(
                f"the model store {self.path} is no absolute path", fix="name it from the root on"
            )
        try:
            self._look()
        except OSError as error:
            raise StoreUnreadable(
                f"the model store {self.path} cannot be read: {error.strerror or error}: {error.filename}",
                fix="name the folder that OLLAMA_MODELS names, which holds blobs/ and manifests/, "
                "and let the user that runs the peer read it",
            ) from error

    async def find(self, name: OllamaName) -> StoredModel | None:
        """The model of this name; None where the store does not hold it, or not all of it.

        Raises:
            StoreUnreadable: that is not to be known now.
        """
        return await trio.to_thread.run_sync(self._find, name, limiter=self._threads)

    def _find(self, name: OllamaName) -> StoredModel | None:
        try:
            self._look()
        except OSError as error:
            raise self._away(error) from error
        try:
            path = self._manifest(name)
            if path is None:
                return None
            raw = _read(path, MAX_MANIFEST)
            config, layers = self._layers(raw)
            said = _object(_read(config.blob, MAX_CONFIG))
        except FileNotFoundError:
            self._incomplete(name, "a file that it names is not there")
            return None
        except (ValueError, RecursionError) as error:
            self._incomplete(name, str(error))
            return None
        except OSError as error:
            raise self._away(error) from error
        return self._model(name, raw, said, config, layers)

    def _look(self) -> None:
        for part in ("manifests", "blobs"):
            with os.scandir(self.path / part) as entries:
                next(entries, None)

    def _away(self, error: OSError) -> StoreUnreadable:
        logger.warning("the model store %s cannot be read: %s", self.path, error)
        return StoreUnreadable(
            f"{NAMED} cannot be read", fix="tell the owner of this machine, whose log says why"
        )

    def _model(
        self, name: OllamaName, raw: bytes, said: dict[str, Any], config: _Layer, layers: list[_Layer]
    ) -> StoredModel:
        weights = next((layer for layer in layers if layer.kind == MODEL), None)
        return StoredModel(
            name=name,
            digest=f"sha256:{hashlib.sha256(raw).hexdigest()}",
            size_bytes=config.size_bytes + sum(layer.size_bytes for layer in layers),
            # Besides the model itself: its projector and adapters. The rest is small.
            weights_bytes=sum(layer.size_bytes for layer in layers),
            family=_text(said.get("model_family")).lower(),
            is_remote=bool(_text(said.get("remote_host")) or _text(said.get("remote_model"))),
            facts=None if weights is None else self._facts(name, weights.blob),
        )

    def _manifest(self, name: OllamaName) -> Path | None:
        """The manifest's path, each part found as it is written or else in other letters."""
        path = self.path / "manifests"
        for part in name.parts:
            found = _entry(path, part)
            if found is None:
                return None
            path = found
        return path if self._is_own_file(path) else None

    def _layers(self, raw: bytes) -> tuple[_Layer, list[_Layer]]:
        manifest = _object(raw)
        layers = manifest.get("layers")
        if not isinstance(layers, list) or len(layers) > MAX_LAYERS:
            raise ValueError("its manifest names no layers")
        return self._layer(manifest.get("config")), [self._layer(layer) for layer in layers]

    def _layer(self, said: object) -> _Layer:
        about = said if isinstance(said, dict) else {}
        matched = _DIGEST.fullmatch(_text(about.get("digest")))
        size = about.get("size")
        if matched is None or not isinstance(size, int):
            raise ValueError("its manifest names a layer by no digest")
        blob = self.path / "blobs" / f"sha256-{matched[1]}"
        if not self._is_own_file(blob) or blob.stat().st_size != size:
            raise ValueError(f"{blob.name[:19]} is missing, cut short or lies elsewhere")
        return _Layer(_text(about.get("mediaType")), blob, size)

    def _is_own_file(self, path: Path) -> bool:
        """Whether it is a plain file in the store itself: a container does not see where a link leads out."""
        if not stat.S_ISREG(path.stat().st_mode):
            return False
        return path.resolve().is_relative_to(self.path.resolve())

    def _facts(self, name: OllamaName, blob: Path) -> Facts | None:
        try:
            return read_facts(blob, name.short)
        except ModelFault as fault:
            logger.info("what %s in the model store is made of is not known: %s", name.short, fault.reason)
            return None

    def _incomplete(self, name: OllamaName, why: str) -> None:
        logger.warning("%s in the model store is not used, and pulled instead: %s", name.short, why)


def _entry(folder: Path, name: str) -> Path | None:
    exact = folder / name
    if exact.exists():
        return exact
    if not folder.is_dir():
        return None
    wanted = name.lower()
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if number >= MAX_ENTRIES:
                return None
            if entry.name.lower() == wanted:
                return folder / entry.name
    return None


def _read(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        raw = file.read(most + 1)
    if len(raw) > most:
        raise ValueError(f"{path.name[:19]} is longer than {most} bytes")
    return raw


def _object(raw: bytes) -> dict[str, Any]:
    found = json.loads(raw)
    if not isinstance(found, dict):
        raise ValueError("it holds no JSON object")  # noqa: TRY004 - of what was read, as all else here
    return found


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
