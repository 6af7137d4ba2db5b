"""The settings of what runs: engines, jobs, images, models, and what each may take (F20 to F22, F31)."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import attrs

from adapters.images.port import Pull
from peer.addresses import HOST_EXPECTED, parse_host
from peer.setting import entry, image_text, memory_ceiling, one_of, path_text, task_ceiling
from peer.units import parse_duration

RuntimeName = Literal["docker", "native", "process", "fake"]

OLLAMA_IMAGE: Final = "ollama/ollama:0.40.6"
VLLM_IMAGE: Final = "vllm/vllm-openai:v0.32.0"
"""Pinned: a new release upstream changes no deploy until a host has proven it."""

IMAGE_EXPECTED: Final = "an image, as docker pull takes it"
MEMORY_EXPECTED: Final = "a size from 6M on (8G), or none"
TASKS_EXPECTED: Final = "a number from 2 on, or none"


@attrs.frozen(kw_only=True, slots=False)
class ProgramSettings:
    """What runs engines and jobs, and how."""

    runtime: RuntimeName = attrs.field(
        metadata=entry(
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
        metadata=entry(
            name="BEST_PEER_PULL",
            default="always",
            parse=one_of("always", "missing"),
            takes="always or missing",
            help="Whether an image named by tag is pulled for every deployment and job, or only when Docker "
            "does not hold it. One named by digest is pulled only then, and pull-image always pulls.",
        )
    )
    ollama_image: str | None = attrs.field(
        metadata=entry(
            name="BEST_PEER_OLLAMA_IMAGE",
            otherwise=f"{OLLAMA_IMAGE}, on ROCm {OLLAMA_IMAGE}-rocm",
            parse=image_text,
            takes=IMAGE_EXPECTED,
            help="The image that Ollama runs in: a mirror's, or another build of it.",
        )
    )
    vllm_image: str = attrs.field(
        metadata=entry(
            name="BEST_PEER_VLLM_IMAGE",
            default=VLLM_IMAGE,
            parse=image_text,
            takes=IMAGE_EXPECTED,
            help="The image that vLLM runs in. The default needs an NVIDIA driver that offers CUDA 13: 580 "
            "or newer.",
        )
    )
    model_store: Path | None = attrs.field(
        metadata=entry(
            name="BEST_PEER_MODEL_STORE",
            otherwise="no store: every model is pulled",
            parse=path_text,
            takes="a folder with blobs/ and manifests/",
            help="A library of Ollama, as its OLLAMA_MODELS is: a model that it holds is served from it, "
            "read-only, and not pulled. It is for containers, and lies at the same path for Docker.",
        )
    )
    models: Path = attrs.field(
        metadata=entry(
            name="BEST_PEER_MODELS",
            otherwise="models/ in the data folder",
            parse=path_text,
            takes="a folder",
            help="Where the GGUF models are that may be deployed.",
        )
    )
    llama_server: Path | None = attrs.field(
        metadata=entry(
            name="BEST_PEER_LLAMA_SERVER",
            otherwise="llama-server on PATH, else the xllamacpp package",
            parse=path_text,
            takes="a program",
            help="The llama-server that serves GGUF models.",
        )
    )
    engine_host: str = attrs.field(
        metadata=entry(
            name="BEST_PEER_ENGINE_HOST",
            default="127.0.0.1",
            parse=parse_host,
            takes=HOST_EXPECTED,
            help="Where the peer itself reaches the engines' ports, which are bound there alone: an address "
            "of the Docker host where Docker is on another machine, on a network you trust.",
        )
    )
    ready_seconds: int = attrs.field(
        metadata=entry(
            name="BEST_PEER_READY_SECONDS",
            default="900",
            parse=lambda text: parse_duration(text, minimum=1),
            takes="seconds, or a number with s, m, h or d",
            help="How long an engine may take to answer after it was started.",
        )
    )
    load_seconds: int = attrs.field(
        metadata=entry(
            name="BEST_PEER_LOAD_SECONDS",
            default="3600",
            parse=lambda text: parse_duration(text, minimum=1),
            takes="seconds, or a number with s, m, h or d",
            help="How long a model may take to load.",
        )
    )
    engine_memory: int | None = attrs.field(
        metadata=entry(
            name="BEST_PEER_ENGINE_MEMORY",
            default="none",
            parse=memory_ceiling,
            takes=MEMORY_EXPECTED,
            help="The ceiling on the host memory of an engine's container; none is no ceiling.",
        )
    )
    engine_pids: int | None = attrs.field(
        metadata=entry(
            name="BEST_PEER_ENGINE_PIDS",
            default="4096",
            parse=task_ceiling,
            takes=TASKS_EXPECTED,
            help="The ceiling on the processes and threads of an engine's container; none is no ceiling.",
        )
    )
    job_memory: int | None = attrs.field(
        metadata=entry(
            name="BEST_PEER_JOB_MEMORY",
            default="4G",
            parse=memory_ceiling,
            takes=MEMORY_EXPECTED,
            help="The ceiling on the host memory of a job in the closed box, its /tmp and swap counted in; "
            "none is no ceiling.",
        )
    )
    job_pids: int | None = attrs.field(
        metadata=entry(
            name="BEST_PEER_JOB_PIDS",
            default="4096",
            parse=task_ceiling,
            takes=TASKS_EXPECTED,
            help="The ceiling on the processes and threads of a job, boxed or not; none is no ceiling.",
        )
    )
