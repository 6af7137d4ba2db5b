"""llama.cpp's own HTTP server out of the `xllamacpp` wheel, as a program of its own (F21).

Run by path as `python -I -S xllama_server.py ...`, so that it is started, limited and killed like
`llama-server`. It serves until SIGTERM and then ends with 0; what stops it from serving stands on its
standard error, and it ends with 1.
"""

import argparse
import importlib
import signal
import sys
from pathlib import Path


def arguments() -> argparse.Namespace:
    """What the peer asks for; every one has to be said."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name, kind in (
        ("site", str),
        ("model", str),
        ("alias", str),
        ("port", int),
        ("key-file", Path),
        ("context", int),
        ("slots", int),
        ("threads", int),
        ("http-threads", int),
    ):
        parser.add_argument(f"--{name}", type=kind, required=True)
    return parser.parse_args()


def main() -> int:
    """Serve one model until asked to end."""
    # Before anything starts threads: they inherit the mask, so that the signal waits for this one.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    asked = arguments()
    # Without site-packages of its own (-S) the wheel is found wherever the peer found it.
    sys.path.append(asked.site)
    try:
        server = serve(asked)
    except (ImportError, OSError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)  # noqa: T201 - it is this program's output
        return 1
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    del server
    return 0


def serve(asked: argparse.Namespace) -> object:
    """Load the model and serve it; what is returned serves as long as it is kept.

    The options answer to those in `llamacpp.py`, which says why each is what it is.
    """
    xllamacpp = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = asked.model
    params.model_alias = {asked.alias}
    params.hostnames = ["127.0.0.1"]
    params.port = asked.port
    params.api_keys = [asked.key_file.read_text("utf-8").strip()]
    params.n_ctx = asked.context
    params.n_parallel = asked.slots
    params.cpuparams.n_threads = asked.threads
    params.cpuparams_batch.n_threads = asked.threads
    params.n_threads_http = asked.http_threads
    params.n_gpu_layers = 0
    params.fit_params = False
    params.load_mode = xllamacpp.llama_load_mode.LLAMA_LOAD_MODE_NONE
    params.cache_ram_mib = 0
    params.cache_idle_slots = False
    params.n_ctx_checkpoints = 0
    params.endpoint_slots = False
    params.ui = False
    params.offline = True
    params.verbosity = 2
    return xllamacpp.Server(params)


if __name__ == "__main__":
    sys.exit(main())
