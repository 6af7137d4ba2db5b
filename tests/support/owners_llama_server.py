"""Stands for an owner's `llama-server`: takes its options strictly, then serves from the wheel.

The options are those of llama.cpp's own help; one that it does not have ends this as it ends the real one.
"""

import argparse
import os
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "adapters" / "engine" / "xllama_server.py"
SITE = next(path for path in sys.path if path.endswith("site-packages"))


def main() -> None:
    """Become the wheel's server."""
    parser = argparse.ArgumentParser(allow_abbrev=False, prog="llama-server")
    for option in ("-m", "-a", "--host", "--port", "--api-key-file", "-c", "-np", "-t", "-tb", "-ngl"):
        parser.add_argument(option, required=True)
    parser.add_argument("--threads-http", required=True)
    for flag in ("--no-slots", "--no-webui"):
        parser.add_argument(flag, action="store_true", required=True)
    asked = parser.parse_args()
    assert (asked.host, asked.ngl, asked.t) == ("127.0.0.1", "0", asked.tb)
    assert os.environ["LLAMA_ARG_CACHE_RAM"] == "0"
    assert os.environ["LLAMA_ARG_LOAD_MODE"] == "none"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "-1"
    options = {
        "--site": SITE,
        "--model": asked.m,
        "--alias": asked.a,
        "--port": asked.port,
        "--key-file": asked.api_key_file,
        "--context": asked.c,
        "--slots": asked.np,
        "--threads": asked.t,
        "--http-threads": asked.threads_http,
    }
    argv = [part for option in options.items() for part in option]
    os.execv(sys.executable, [sys.executable, "-I", "-S", str(SCRIPT), *argv])


if __name__ == "__main__":
    main()
