"""What `scripts/prove-on-gpu` is told. Nothing but the standard library: its --help needs no environment."""

import argparse
import re
from pathlib import Path

OLLAMA_MODEL = "qwen2.5:0.5b"
VLLM_MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
JOB_IMAGE = "ubuntu:24.04"
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
ABOUT = """\
Proves on this host what no test machine has: starts a peer of its own, lets an agent in, and has it deploy a
model with the engines' own images on a card, ask it something, read what the card holds by the driver's own
figure, run a job that looks at the card, and end everything. Then it writes a report to send back.

It pulls the engines' images (ollama/ollama some 4 GB, vllm/vllm-openai some 12 GB), an Ubuntu, and two small
models. It needs Docker on this machine, this user's right to use it, and for a card the NVIDIA driver and the
NVIDIA container toolkit. It changes nothing else: the peer's data lie in a folder of its own, which is
removed, as are its containers. The images stay, unless --remove-images is given for those that were named.

The report holds what the machine is, what was tried, the facts that were told and the peer's own log. It
holds no key, no word of a conversation, and your home folder as ~."""
EXITS = "Exit codes: 0 proven; 1 something failed; 2 nothing could be tried; 3 not all could be tried here."


def read_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """What was said; ends the program with 2 where that makes no sense."""
    parser = argparse.ArgumentParser(
        prog="scripts/prove-on-gpu",
        description=ABOUT,
        epilog=EXITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="where the report goes (prove-on-gpu-TIME.json)"
    )
    parser.add_argument(
        "--engines",
        type=_engines,
        default=("ollama", "vllm"),
        metavar="NAMES",
        help="ollama,vllm or one of them",
    )
    parser.add_argument("--device", metavar="ID", help="the device to use (the first card, else the CPU)")
    parser.add_argument("--ollama-model", default=OLLAMA_MODEL, metavar="NAME", help="%(default)s")
    parser.add_argument("--vllm-model", default=VLLM_MODEL, metavar="NAME", help="%(default)s")
    parser.add_argument(
        "--ollama-memory", type=_size, default=_size("4G"), metavar="SIZE", help="its promise (4G)"
    )
    parser.add_argument(
        "--vllm-memory", type=_size, default=_size("8G"), metavar="SIZE", help="its promise (8G)"
    )
    parser.add_argument("--ollama-image", metavar="IMAGE", help="in place of the pinned one")
    parser.add_argument("--vllm-image", metavar="IMAGE", help="in place of the pinned one")
    parser.add_argument(
        "--job-image", default=JOB_IMAGE, metavar="IMAGE", help="what jobs run in (%(default)s)"
    )
    parser.add_argument(
        "--model-store", type=Path, metavar="FOLDER", help="serve Ollama's model from this library"
    )
    parser.add_argument("--remove-images", action="store_true", help="remove the images that were named here")
    parser.add_argument(
        "--patience", type=float, default=5400.0, metavar="SECONDS", help="for one command (%(default)s)"
    )
    parser.add_argument("--rehearse", action="store_true", help="without a card, on the CPU; proves nothing")
    parser.add_argument("--peer", type=Path, required=True, metavar="PROGRAM", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def _engines(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(","))
    if not found or set(found) - {"ollama", "vllm"}:
        raise argparse.ArgumentTypeError(f"expected ollama, vllm or both with a comma; got {text}")
    return found


def _size(text: str) -> int:
    found = re.fullmatch(r"(\d+)([KMGT]?)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"expected a size such as 4G; got {text}")
    return int(found[1]) * UNITS[found[2]]


if __name__ == "__main__":
    read_arguments()
