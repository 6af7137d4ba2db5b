"""Speaks vLLM's API as it is documented, with a real llama.cpp behind it.

    VLLM_API_KEY=… STANDIN_HUB=… python -m tests.standins.vllm_server --model tiny/chat --port 8000 …

Its hub is a folder with a GGUF file for each model, `organization/model.gguf`, and a `script.json` that may
say how a model ends instead of serving (a name of `ENDS`), or what it does while it serves. Its card has
`STANDIN_CARD_BYTES`, of which `STANDIN_CARD_FREE` are free. It takes the options that vLLM documents and
refuses all others with 2; no port is open before the model is loaded.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.standins.llama_runner import LlamaRunner, RunnerEnded

CARD_BYTES = 24 * 1024**3
CONTEXT = 512
MAX_BODY = 4 * 1024 * 1024
GIB = 1024**3

_TRACE = [
    "Traceback (most recent call last):",
    *['  File "/usr/lib/vllm/v1/engine/core.py", line 1, in run'] * 30,
]
_LAST = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"
ENDS = {
    "missing": (
        "OSError: {model} is not a local folder and is not a valid model identifier listed on "
        "'https://huggingface.co/models'"
    ),
    "gated": "OSError: You are trying to access a gated repo. Access to model {model} is restricted",
    "unreachable": "huggingface_hub.errors.LocalEntryNotFoundError: Couldn't connect to 'https://huggingface.co'",
    "full-disk": "OSError: [Errno 28] No space left on device",
    "old-driver": "RuntimeError: The NVIDIA driver on your system is too old (found version 12020)",
    "no-card": "RuntimeError: Failed to infer device type, please set VLLM_LOGGING_LEVEL",
    "no-memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1.00 GiB",
    "no-cache": (
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"
    ),
    "broken": "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata",
    "unsupported": "ValueError: Model architectures ['OddForCausalLM'] are not supported for now.",
}


def arguments() -> argparse.Namespace:
    """The options of `vllm serve` that anybody here uses; all others are refused."""
    parser = argparse.ArgumentParser(prog="vllm serve", allow_abbrev=False)
    parser.add_argument("--model", required=True)
    parser.add_argument("--served-model-name")
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--gpu-memory-utilization", type=float, default=0.92)
    parser.add_argument("--max-model-len", default=None)
    parser.add_argument("--uvicorn-log-level", default="info", choices=["debug", "info", "warning", "error"])
    parser.add_argument("--enable-sleep-mode", action="store_true")
    parser.add_argument("--tensor-parallel-size", type=int, default=1)
    return parser.parse_args()


class Vllm:
    """The one model that is served."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked = asked
        self.name = asked.served_model_name or asked.model
        self.key = os.environ.get("VLLM_API_KEY")
        self.has_sleep = os.environ.get("VLLM_SERVER_DEV_MODE") == "1" and asked.enable_sleep_mode
        self.hub = Path(os.environ.get("STANDIN_HUB", "/hub"))
        self.script = self._script()
        self.is_hung = False
        self.is_broken = False
        self.computed = 0
        self.asleep = threading.Event()
        self._check_memory()
        if (end := self.script.get("end")) is not None:
            fail(ENDS[end].format(model=asked.model))
        path = self.hub / f"{asked.model}.gguf"
        if not path.exists():
            fail(ENDS["missing"].format(model=asked.model))
        self.context = CONTEXT if asked.max_model_len in (None, "auto", "-1") else int(asked.max_model_len)
        if self.context > CONTEXT:
            fail(f"ValueError: User-specified max_model_len ({self.context}) is greater than the derived one")
        print("INFO Starting to load model", flush=True)
        try:
            self.runner = LlamaRunner(path, context=self.context, slots=4)
        except RunnerEnded as error:
            fail(str(error))
        threading.Thread(target=self._watch, daemon=True).start()

    def _script(self) -> dict[str, Any]:
        path = self.hub / "script.json"
        found = json.loads(path.read_text()).get(self.asked.model, {}) if path.exists() else {}
        assert isinstance(found, dict)
        return found

    def _check_memory(self) -> None:
        total = int(os.environ.get("STANDIN_CARD_BYTES", CARD_BYTES))
        free = int(os.environ.get("STANDIN_CARD_FREE", total))
        wanted = self.asked.gpu_memory_utilization * total
        if not 0 < self.asked.gpu_memory_utilization <= 1:
            fail("ValueError: gpu_memory_utilization must be in (0, 1]")
        if wanted > free:
            fail(
                f"ValueError: Free memory on device cuda:0 ({free / GIB:.2f}/{total / GIB:.2f} GiB) on "
                f"startup is less than desired GPU memory utilization ({self.asked.gpu_memory_utilization}, "
                f"{wanted / GIB:.2f} GiB). Decrease GPU memory utilization or reduce memory usage."
            )

    def _watch(self) -> None:
        """Its worker gone, it says that it is unwell for a moment and then ends with 0."""
        self.runner.process.wait()
        self.is_broken = True
        print("ERROR [core_client.py] Engine core proc died unexpectedly, shutting down client.", flush=True)
        time.sleep(0.2)
        os._exit(0)


def fail(cause: str) -> None:
    """End with 1, the cause well above the last line."""
    for line in ["INFO Initializing a V1 LLM engine", *_TRACE[:2], cause, *_TRACE, _LAST]:
        print(line, file=sys.stderr)
    sys.stderr.flush()
    os._exit(1)


class Handler(BaseHTTPRequestHandler):
    """One connection's questions."""

    protocol_version = "HTTP/1.1"
    vllm: Vllm

    def do_GET(self) -> None:
        """Everything that is only read."""
        if self.path == "/health":
            self._send(503 if self.vllm.is_broken else 200, b"", "text/plain")
        elif self.path == "/version":
            self._json(200, {"version": "0.32.0"})
        elif self.path == "/metrics":
            self._metrics()
        elif self.path == "/standin":
            self._json(200, {"options": vars(self.vllm.asked), "environment": dict(os.environ)})
        elif self.path == "/v1/models" and self._may():
            about = {"id": self.vllm.name, "object": "model", "max_model_len": self.vllm.context}
            self._json(200, {"object": "list", "data": [about]})
        elif not self.path.startswith("/v1"):
            self._json(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        """Everything that is done."""
        length = int(self.headers.get("content-length") or 0)
        raw = self.rfile.read(min(length, MAX_BODY))
        if self.path == "/standin":
            self._world(json.loads(raw))
        elif self.path in ("/sleep", "/wake_up") and self.vllm.has_sleep:
            self.vllm.is_hung = self.path == "/sleep"
            self._json(200, {})
        elif self.path == "/v1/chat/completions":
            if self._may():
                self._chat(raw)
        else:
            self._json(404, {"detail": "Not Found"})

    def _may(self) -> bool:
        if self.vllm.key is None or self.headers.get("authorization") == f"Bearer {self.vllm.key}":
            return True
        self._json(401, {"error": "Unauthorized"})
        return False

    def _chat(self, raw: bytes) -> None:
        vllm = self.vllm
        try:
            question = json.loads(raw)
        except ValueError as error:
            self._error(400, "Bad Request", str(error))
            return
        if question.get("model") not in (None, vllm.name):
            self._error(404, "NotFoundError", f"The model `{question.get('model')}` does not exist.")
            return
        if vllm.script.get("is_embedding"):
            self._error(400, "BadRequestError", "The model does not support Chat Completions API")
            return
        if not question.get("messages"):
            self._error(400, "BadRequestError", "messages must not be empty")
            return
        if vllm.is_hung:
            time.sleep(3600)
        try:
            status, body = vllm.runner.chat(question)
        except RunnerEnded:
            self._error(500, "InternalServerError", "EngineCore encountered an issue.")
            return
        if status == 400:
            words = (
                f"This model's maximum context length is {vllm.context} tokens. However, your prompt "
                f"contains at least {vllm.context + 1} input tokens. Please reduce the length."
            )
            self._error(400, "BadRequestError", words)
            return
        vllm.computed += body.get("usage", {}).get("total_tokens", 0)
        body["model"] = vllm.name
        body.pop("timings", None)
        for choice in body.get("choices", ()):
            choice["stop_reason"] = None
        self._json(status, body)

    def _metrics(self) -> None:
        label = f'{{engine="0",model_name="{self.vllm.name}"}}'
        lines = [
            "# TYPE vllm:prompt_tokens_total counter",
            f"vllm:prompt_tokens_total{label} {float(self.vllm.computed)}",
            f"vllm:generation_tokens_total{label} 1.0",
            f"vllm:num_requests_running{label} 0.0",
        ]
        self._send(200, "\n".join(lines).encode(), "text/plain")

    def _world(self, asked: dict[str, Any]) -> None:
        """What may happen to it: its worker is killed, it hangs, others' prompts are computed."""
        if asked.get("kill_worker"):
            self.vllm.runner.kill()
        self.vllm.is_hung = bool(asked.get("hang", self.vllm.is_hung))
        self.vllm.computed += int(asked.get("compute", 0))
        self._json(200, {})

    def _error(self, status: int, kind: str, words: str) -> None:
        self._json(status, {"error": {"message": words, "type": kind, "param": None, "code": status}})

    def _json(self, status: int, body: object) -> None:
        self._send(status, json.dumps(body).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        try:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base's own name
        """Nothing, as with `--uvicorn-log-level warning`."""


class Server(ThreadingHTTPServer):
    """Connections in threads that end with the program."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients leave; that is no news."""


def main() -> int:
    """Serve until asked to end, which ends with 0."""
    asked = arguments()
    Handler.vllm = Vllm(asked)

    def end(number: int, frame: object) -> None:
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    server = Server((asked.host, asked.port), Handler)
    print("INFO Application startup complete.", flush=True)
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
