"""Every setting of the peer, read from the environment in this one place (F33).

A setting is one field of `Settings`: its metadata is its entry in the table from which ``--help`` and
``docs/settings.md`` are made as well. To add one, add its field; if it must agree with others, say so in
`peer.settings_checks`.
"""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import attrs

from adapters.images.port import Pull
from peer.addresses import (
    ENDPOINT_EXPECTED,
    HOST_EXPECTED,
    LISTEN_EXPECTED,
    Address,
    Endpoint,
    parse_endpoint,
    parse_host,
    parse_listen,
)
from peer.logs import SPEC_EXPECTED, LogSpec, parse_log_spec
from peer.setting import (
    MAX_VALUE,
    Problem,
    Setting,
    SettingsError,
    absolute,
    image_text,
    memory_ceiling,
    one_of,
    path_text,
    shown,
    task_ceiling,
    whole_number,
)
from peer.settings_checks import conflicts, in_the_clear
from peer.settings_names import RETIRED, retired, unknown
from peer.units import parse_duration

RuntimeName = Literal["docker", "native", "process", "fake"]

OLLAMA_IMAGE: Final = "ollama/ollama:0.40.6"
VLLM_IMAGE: Final = "vllm/vllm-openai:v0.32.0"
"""Pinned: a new release upstream changes no deploy until a host has proven it."""

DOCKER_VARIABLES: Final = ("DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "HOME")

IMAGE_EXPECTED: Final = "an image, as docker pull takes it"
MEMORY_EXPECTED: Final = "a size from 6M on (8G), or none"
TASKS_EXPECTED: Final = "a number from 2 on, or none"


def _entry(**parts: Any) -> dict[str, Setting]:
    return {"setting": Setting(**parts)}


@attrs.frozen(kw_only=True)
class Settings:
    """What a person chose for this peer, checked. Paths are absolute, durations seconds, sizes bytes."""

    listen: Address = attrs.field(
        metadata=_entry(
            name="BEST_PEER_LISTEN",
            default="127.0.0.1:7777",
            parse=parse_listen,
            takes=LISTEN_EXPECTED,
            help="Where the door listens; port 0 lets the system choose one.",
        )
    )
    endpoint: Endpoint = attrs.field(
        metadata=_entry(
            name="BEST_PEER_ENDPOINT",
            otherwise="http:// and the listen address",
            parse=parse_endpoint,
            takes=ENDPOINT_EXPECTED,
            help="The base URL that consumers are told; to be set when the door listens on every "
            "interface. Its port may be 0 for the one the door gets.",
        )
    )
    cleartext: Literal["vpn"] | None = attrs.field(
        metadata=_entry(
            name="BEST_PEER_CLEARTEXT",
            otherwise="http:// on loopback alone",
            parse=one_of("vpn"),
            takes="vpn",
            help="Serves http:// off loopback, where a VPN encrypts every hop to and from it.",
        )
    )
    tls_cert: Path | None = attrs.field(
        metadata=_entry(
            name="BEST_PEER_TLS_CERT",
            otherwise="a certificate that the peer makes",
            parse=path_text,
            takes="a PEM file",
            help="The certificate chain of your own for an https:// endpoint; goes with BEST_PEER_TLS_KEY.",
        )
    )
    tls_key: Path | None = attrs.field(
        metadata=_entry(
            name="BEST_PEER_TLS_KEY",
            otherwise="the key of the certificate that the peer makes",
            parse=path_text,
            takes="a PEM file, not encrypted",
            help="The private key of BEST_PEER_TLS_CERT.",
        )
    )
    data: Path = attrs.field(
        metadata=_entry(
            name="BEST_PEER_DATA",
            default="~/.best-peer",
            parse=path_text,
            takes="a folder",
            help="Where the event log, the keys as hashes, the admin token and the certificate are kept.",
        )
    )
    gpu: Literal["none"] = attrs.field(
        metadata=_entry(
            name="BEST_PEER_GPU",
            default="none",
            parse=one_of("none", later=("nvml",)),
            takes="none, the one choice of this release",
            help="How the peer sees accelerators; none serves the host's CPU as the one device.",
        )
    )
    runtime: RuntimeName = attrs.field(
        metadata=_entry(
            name="BEST_PEER_RUNTIME",
            default="docker",
            parse=one_of("docker", "native", "process", "fake"),
            takes="docker, native, process or fake",
            help="What runs engines and jobs: docker, in containers (DOCKER_HOST, DOCKER_TLS_VERIFY and "
            "DOCKER_CERT_PATH say where, as for docker itself); native, the Ollama that is installed here; "
            "process, llama.cpp as a process of this host; fake, which answers and runs nothing. "
            "docker alone runs jobs.",
        )
    )
    pull: Pull = attrs.field(
        metadata=_entry(
            name="BEST_PEER_PULL",
            default="always",
            parse=one_of("always", "missing"),
            takes="always or missing",
            help="Whether an image named by tag is pulled for every deployment and job, or only when Docker "
            "does not hold it. One named by digest is pulled only then, and pull-image always pulls.",
        )
    )
    ollama_image: str | None = attrs.field(
        metadata=_entry(
            name="BEST_PEER_OLLAMA_IMAGE",
            otherwise=f"{OLLAMA_IMAGE}, on ROCm {OLLAMA_IMAGE}-rocm",
            parse=image_text,
            takes=IMAGE_EXPECTED,
            help="The image that Ollama runs in: a mirror's, or another build of it.",
        )
    )
    vllm_image: str = attrs.field(
        metadata=_entry(
            name="BEST_PEER_VLLM_IMAGE",
            default=VLLM_IMAGE,
            parse=image_text,
            takes=IMAGE_EXPECTED,
            help="The image that vLLM runs in. The default needs an NVIDIA driver that offers CUDA 13: 580 "
            "or newer.",
        )
    )
    model_store: Path | None = attrs.field(
        metadata=_entry(
            name="BEST_PEER_MODEL_STORE",
            otherwise="no store: every model is pulled",
            parse=path_text,
            takes="a folder with blobs/ and manifests/",
            help="A library of Ollama, as its OLLAMA_MODELS is: a model that it holds is served from it, "
            "read-only, and not pulled. It is for containers, and lies at the same path for Docker.",
        )
    )
    models: Path = attrs.field(
        metadata=_entry(
            name="BEST_PEER_MODELS",
            otherwise="models/ in the data folder",
            parse=path_text,
            takes="a folder",
            help="Where the GGUF models are that may be deployed.",
        )
    )
    llama_server: Path | None = attrs.field(
        metadata=_entry(
            name="BEST_PEER_LLAMA_SERVER",
            otherwise="llama-server on PATH, else the xllamacpp package",
            parse=path_text,
            takes="a program",
            help="The llama-server that serves GGUF models.",
        )
    )
    engine_host: str = attrs.field(
        metadata=_entry(
            name="BEST_PEER_ENGINE_HOST",
            default="127.0.0.1",
            parse=parse_host,
            takes=HOST_EXPECTED,
            help="Where the peer itself reaches the engines' ports, which are bound there alone: an address "
            "of the Docker host where Docker is on another machine, on a network you trust.",
        )
    )
    ready_seconds: int = attrs.field(
        metadata=_entry(
            name="BEST_PEER_READY_SECONDS",
            default="900",
            parse=lambda text: parse_duration(text, minimum=1),
            takes="seconds, or a number with s, m, h or d",
            help="How long an engine may take to answer after it was started.",
        )
    )
    load_seconds: int = attrs.field(
        metadata=_entry(
            name="BEST_PEER_LOAD_SECONDS",
            default="3600",
            parse=lambda text: parse_duration(text, minimum=1),
            takes="seconds, or a number with s, m, h or d",
            help="How long a model may take to load.",
        )
    )
    engine_memory: int | None = attrs.field(
        metadata=_entry(
            name="BEST_PEER_ENGINE_MEMORY",
            default="none",
            parse=memory_ceiling,
            takes=MEMORY_EXPECTED,
            help="The ceiling on the host memory of an engine's container; none is no ceiling.",
        )
    )
    engine_pids: int | None = attrs.field(
        metadata=_entry(
            name="BEST_PEER_ENGINE_PIDS",
            default="4096",
            parse=task_ceiling,
            takes=TASKS_EXPECTED,
            help="The ceiling on the processes and threads of an engine's container; none is no ceiling.",
        )
    )
    job_memory: int | None = attrs.field(
        metadata=_entry(
            name="BEST_PEER_JOB_MEMORY",
            default="4G",
            parse=memory_ceiling,
            takes=MEMORY_EXPECTED,
            help="The ceiling on the host memory of a job in the closed box, its /tmp and swap counted in; "
            "none is no ceiling.",
        )
    )
    job_pids: int | None = attrs.field(
        metadata=_entry(
            name="BEST_PEER_JOB_PIDS",
            default="4096",
            parse=task_ceiling,
            takes=TASKS_EXPECTED,
            help="The ceiling on the processes and threads of a job, boxed or not; none is no ceiling.",
        )
    )
    commands_per_minute: int = attrs.field(
        metadata=_entry(
            name="BEST_PEER_COMMANDS_PER_MINUTE",
            default="60",
            parse=whole_number,
            takes="a number from 1 on",
            help="How many new commands a key with a share may send in any sixty seconds.",
        )
    )
    streams_per_credential: int = attrs.field(
        metadata=_entry(
            name="BEST_PEER_STREAMS_PER_CREDENTIAL",
            default="4",
            parse=whole_number,
            takes="a number from 1 on",
            help="How many event streams a key with a share may hold open.",
        )
    )
    log: LogSpec = attrs.field(
        metadata=_entry(
            name="BEST_PEER_LOG",
            default="info",
            parse=parse_log_spec,
            takes=SPEC_EXPECTED,
            help="How loud the log on stderr is: info,door=warning leaves out a line for each request.",
        )
    )
    docker: Mapping[str, str] = attrs.field(factory=dict)
    """The variables by which docker itself is told where the container engine is."""
    unknown: tuple[str, ...] = ()
    """A line for each ``BEST_PEER_*`` variable that is no setting of this release."""

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Settings:
        """Read and check every setting; the one place that looks at the environment.

        Args:
            environ: the environment, ``os.environ`` for a peer.

        Raises:
            SettingsError: any is wrong, with all that are wrong in it.
        """
        problems = [retired(name, environ[name]) for name in RETIRED if name in environ]
        given = {setting.name for setting in settings_table() if setting.name in environ}
        failed: set[str] = set()
        values: dict[str, Any] = {}
        home = _home(environ)
        for field, setting in _fields().items():
            try:
                values[field] = _value(setting, environ.get(setting.name), home)
            except ValueError as error:
                failed.add(setting.name)
                problems.append(_refused(setting, environ.get(setting.name), error))
                values[field] = None if setting.default is None else setting.parse(setting.default)
        _complete(values, environ.get("PATH", os.defpath))
        known = [setting.name for setting in settings_table()]
        docker = {name: environ[name] for name in DOCKER_VARIABLES if name in environ}
        settings = cls(**values, docker=docker, unknown=tuple(unknown(environ, known)))
        # What rests on a value that was refused itself would only be noise.
        problems += [
            each for each in conflicts(settings, given) if not failed & {each.variable, *each.involves}
        ]
        if problems:
            raise SettingsError(tuple(problems))
        return settings

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the log is told at start: unknown variables, and http off loopback."""
        if not in_the_clear(self):
            return self.unknown
        return (
            *self.unknown,
            f"{self.endpoint} is served in the clear: BEST_PEER_CLEARTEXT=vpn says a VPN encrypts every hop",
        )


def settings_table() -> tuple[Setting, ...]:
    """Every setting of this release, in the order that people read them."""
    return tuple(_fields().values())


def _fields() -> dict[str, Setting]:
    return {
        field.name: field.metadata["setting"]
        for field in attrs.fields(Settings)
        if "setting" in field.metadata
    }


def _home(environ: Mapping[str, str]) -> Path | None:
    """The home folder, if there is one: a container may run as a user that nobody named."""
    if environ.get("HOME"):
        return Path(environ["HOME"])
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return None


def _value(setting: Setting, given: str | None, home: Path | None) -> object:
    text = setting.default if given is None else given.strip()
    if text is None:
        return None
    if not text:
        raise ValueError(f"it is empty, expected {setting.takes}")
    if len(text) > MAX_VALUE:
        raise ValueError(f"expected {setting.takes}, in at most {MAX_VALUE} characters")
    value = setting.parse(text)
    return absolute(value, home) if isinstance(value, Path) else value


def _refused(setting: Setting, given: str | None, error: ValueError) -> Problem:
    value = None if given is None else shown(given, secret=setting.secret)
    return Problem(variable=setting.name, shown=value, expected=str(error), fix=setting.unset_it)


def _complete(values: dict[str, Any], search: str) -> None:
    """Fill in what follows from other values, and the program found on ``search``."""
    listen: Address = values["listen"]
    values["endpoint"] = values["endpoint"] or Endpoint("http", listen.host, listen.port)
    values["models"] = values["models"] or values["data"] / "models"
    if values["llama_server"] is None and (found := shutil.which("llama-server", path=search)):
        values["llama_server"] = Path(found).absolute()
