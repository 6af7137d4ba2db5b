"""Speaks Ollama's API as it is documented, with a real llama.cpp behind it.

    OLLAMA_HOST=127.0.0.1:0 OLLAMA_MODELS=… STANDIN_REGISTRY=… python -m tests.standins.ollama_server

What it pulls lies in the library that `STANDIN_REGISTRY` names, where `script.json` may say how a pull of a
model goes, attempt by attempt (see `ollama_pulls.py`), and how a model lies on the card. `GET /standin` tells
what it was started with and what was asked of it; `POST /standin` does to it what the world may.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.standins.library import blob_path, manifest_path
from tests.standins.llama_runner import LlamaRunner, RunnerEnded
from tests.standins.ollama_pulls import Gone, PullFailed, pull

VERSION = "0.40.6"
MODEL = "application/vnd.ollama.image.model"
LOCAL = ("127.0.0.1", "localhost", "::1", "[::1]")
MAX_BODY = 4 * 1024 * 1024
TRAINED_CONTEXT = 512
DEFAULT_CONTEXT = 4096


class Refused(Exception):
    """Raised to answer with an error."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class Ollama:
    """The state of one server: its library, and the one model that is loaded."""

    def __init__(self) -> None:
        self.library = Path(os.environ.get("OLLAMA_MODELS") or Path.home() / ".ollama" / "models")
        self.registry = Path(os.environ["STANDIN_REGISTRY"]) if "STANDIN_REGISTRY" in os.environ else None
        self.slots = int(os.environ.get("OLLAMA_NUM_PARALLEL") or 1)
        self.most_waiting = int(os.environ.get("OLLAMA_MAX_QUEUE") or 512)
        self.loads = 0
        self.pulls: list[str] = []
        self.asked: list[dict[str, Any]] = []
        self.waiting = 0
        self.is_hung = False
        self._turn = threading.Lock()
        self._loaded: tuple[str, str] | None = None
        self._runner: LlamaRunner | None = None
        self._load_context = 0

    def script(self, model: str) -> dict[str, Any]:
        """What is said of a model beside its manifest."""
        path = None if self.registry is None else self.registry / "script.json"
        if path is None or not path.exists():
            return {}
        found = json.loads(path.read_text()).get(short(model), {})
        assert isinstance(found, dict)
        return found

    def manifest(self, model: str) -> dict[str, Any] | None:
        """The manifest of a model it has."""
        path = manifest_path(self.library, model)
        return json.loads(path.read_bytes()) if path.exists() else None

    def must_have(self, model: str) -> dict[str, Any]:
        """The manifest of a model."""
        found = self.manifest(model)
        if found is None:
            raise Refused(404, f"model '{model}' not found")
        return found

    def config(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """A model's configuration."""
        found = json.loads(blob_path(self.library, manifest["config"]["digest"]).read_bytes())
        assert isinstance(found, dict)
        return found

    def capabilities(self, manifest: dict[str, Any]) -> list[str]:
        """What a model can do."""
        config = self.config(manifest)
        said = config.get("capabilities")
        return said if isinstance(said, list) else ["completion"]

    def names(self) -> list[str]:
        """Every model it has, as it lists them."""
        manifests = self.library / "manifests"
        found = [path.relative_to(manifests).parts for path in manifests.rglob("*") if path.is_file()]
        return sorted(short(f"{'/'.join(parts[:3])}:{parts[3]}") for parts in found if len(parts) == 4)

    def load(self, model: str, question: dict[str, Any]) -> LlamaRunner:
        """Have a model loaded as the question says; anew when it says otherwise than the last."""
        manifest = self.must_have(model)
        if "completion" not in self.capabilities(manifest):
            raise Refused(400, f'"{model}" does not support chat')
        options = question.get("options") or {}
        context = int(options.get("num_ctx") or os.environ.get("OLLAMA_CONTEXT_LENGTH") or DEFAULT_CONTEXT)
        how = json.dumps([context, options.get("num_gpu"), options.get("main_gpu"), question.get("shift")])
        with self._turn:
            wanted = (short(model), how)
            if self._runner is not None and self._runner.is_running and self._loaded == wanted:
                return self._runner
            self.unload_now()
            if (fails := self.script(model).get("load_fails")) is not None:
                raise Refused(500, fails)
            weights = next(layer for layer in manifest["layers"] if layer["mediaType"] == MODEL)
            self._load_context = min(context, TRAINED_CONTEXT)
            try:
                self._runner = LlamaRunner(
                    blob_path(self.library, weights["digest"]), context=self._load_context, slots=self.slots
                )
            except RunnerEnded as error:
                raise Refused(500, f"llama-server process has terminated: {error}") from error
            self._loaded, self.loads = wanted, self.loads + 1
            return self._runner

    def unload_now(self) -> None:
        """Let the loaded model go."""
        if self._runner is not None:
            self._runner.stop()
        self._runner = self._loaded = None

    def unload(self, model: str) -> None:
        """Let this model go."""
        with self._turn:
            if self._loaded is not None and self._loaded[0] == short(model):
                self.unload_now()

    def running(self) -> list[dict[str, Any]]:
        """What `/api/ps` lists."""
        if self._loaded is None or self._runner is None or not self._runner.is_running:
            return []
        name, how = self._loaded
        size = 1_000_000
        no_gpu = json.loads(how)[1] == 0
        on_card = 0 if no_gpu or not has_card() else round(size * float(self.script(name).get("card", 1)))
        said = {"name": name, "model": name, "size": size, "context_length": self._load_context}
        # As Go leaves a zero out of nothing here: the figure is always there.
        return [{**said, "size_vram": on_card, "expires_at": "2318-01-01T00:00:00Z"}]

    def kill_runner(self) -> None:
        """Have the part that runs the model killed."""
        if self._runner is not None:
            self._runner.kill()


def has_card() -> bool:
    """Whether a card was handed over and is not hidden."""
    seen = os.environ.get("NVIDIA_VISIBLE_DEVICES", os.environ.get("STANDIN_CARD", ""))
    return seen not in ("", "void", "none") and os.environ.get("CUDA_VISIBLE_DEVICES") != "-1"


def short(model: str) -> str:
    """A model's name as it is listed."""
    parts = manifest_path(Path("/"), model).parts[2:]
    named = f"{parts[2]}:{parts[3]}"
    if parts[0] != "registry.ollama.ai":
        return f"{parts[0]}/{parts[1]}/{named}"
    return named if parts[1] == "library" else f"{parts[1]}/{named}"


class Handler(BaseHTTPRequestHandler):
    """One connection's questions."""

    protocol_version = "HTTP/1.1"
    ollama: Ollama
    is_local: bool

    def do_GET(self) -> None:
        """Everything that is only read."""
        if self._is_foreign() or self._hangs():
            return
        if self.path == "/":
            self._send(200, b"Ollama is running", "text/plain; charset=utf-8")
        elif self.path == "/api/version":
            self._json(200, {"version": VERSION})
        elif self.path == "/api/tags":
            self._json(200, {"models": [self._tag(name) for name in self.ollama.names()]})
        elif self.path == "/api/ps":
            self._json(200, {"models": self.ollama.running()})
        elif self.path == "/standin":
            self._json(200, self._about())
        else:
            self._send(404, b"404 page not found", "text/plain")

    def do_POST(self) -> None:
        """Everything that is done."""
        if self._is_foreign() or self._hangs():
            return
        routes = {
            "/api/show": self._show,
            "/api/pull": self._pull,
            "/api/chat": self._chat,
            "/api/generate": self._chat,
            "/standin": self._world,
        }
        route = routes.get(self.path)
        if route is None:
            self._send(404, b"404 page not found", "text/plain")
            return
        try:
            length = int(self.headers.get("content-length") or 0)
            question = json.loads(self.rfile.read(min(length, MAX_BODY)) or b"{}")
            route(question)
        except Refused as refused:
            self._json(refused.status, {"error": str(refused)})
        except ValueError as error:
            self._json(400, {"error": str(error)})

    def do_DELETE(self) -> None:
        """`ollama rm`."""
        length = int(self.headers.get("content-length") or 0)
        question = json.loads(self.rfile.read(length))
        path = manifest_path(self.ollama.library, question["model"])
        if not path.exists():
            self._json(404, {"error": f"model '{question['model']}' not found"})
            return
        path.unlink()
        self.ollama.unload(question["model"])
        self._send(200, b"", "application/json")

    def _tag(self, name: str) -> dict[str, Any]:
        manifest = self.ollama.must_have(name)
        config = self.ollama.config(manifest)
        size = manifest["config"]["size"] + sum(layer["size"] for layer in manifest["layers"])
        said = {
            "name": name,
            "model": name,
            "size": size,
            "digest": "0" * 64,
            "details": {"family": config.get("model_family", "")},
        }
        if self.ollama.script(name).get("is_old"):
            return said
        if config.get("remote_host"):
            said["remote_host"] = config["remote_host"]
        return {**said, "capabilities": self.ollama.capabilities(manifest)}

    def _show(self, question: dict[str, Any]) -> None:
        manifest = self.ollama.must_have(question["model"])
        self._json(200, {"capabilities": self.ollama.capabilities(manifest), "model_info": {}})

    def _pull(self, question: dict[str, Any]) -> None:
        model = str(question.get("model") or question.get("name"))
        self.ollama.pulls.append(model)
        begun = False

        def tell(line: dict[str, Any]) -> None:
            nonlocal begun
            if not begun:
                self.send_response(200)
                self.send_header("content-type", "application/x-ndjson")
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                begun = True
            self._chunk(json.dumps(line).encode() + b"\n")

        try:
            attempt = self.ollama.pulls.count(model)
            pull(self.ollama.library, self.ollama.registry, model, self.ollama.script(model), attempt, tell)
        except PullFailed as failed:
            if not begun:
                raise Refused(500, str(failed)) from failed
            tell({"error": str(failed)})
        except Gone:
            self.close_connection = True
            self.connection.close()
            return
        except (BrokenPipeError, ConnectionResetError):
            return
        self._chunk(b"")

    def _chat(self, question: dict[str, Any]) -> None:
        ollama, model = self.ollama, str(question.get("model"))
        if self.path == "/api/chat":
            ollama.asked.append({key: value for key, value in question.items() if key != "messages"})
        messages = question.get("messages") or []
        said = {"model": model, "created_at": "2026-01-01T00:00:00Z", "done": True}
        if not messages and question.get("keep_alive") == 0:
            ollama.must_have(model)
            ollama.unload(model)
            self._json(
                200, {**said, "message": {"role": "assistant", "content": ""}, "done_reason": "unload"}
            )
            return
        if ollama.waiting >= ollama.most_waiting:
            raise Refused(503, "server busy, please try again.  maximum pending requests exceeded")
        ollama.waiting += 1
        try:
            runner = ollama.load(model, question)
            if not messages:
                self._json(
                    200, {**said, "message": {"role": "assistant", "content": ""}, "done_reason": "load"}
                )
                return
            self._json(200, {**said, **self._answer(runner, question, messages)})
        finally:
            ollama.waiting -= 1

    def _answer(
        self, runner: LlamaRunner, question: dict[str, Any], messages: list[dict[str, str]]
    ) -> dict[str, Any]:
        options = question.get("options") or {}
        asked: dict[str, Any] = {"messages": messages, "temperature": options.get("temperature", 0)}
        if "num_predict" in options:
            asked["max_tokens"] = options["num_predict"]
        if "stop" in options:
            asked["stop"] = options["stop"]
        cut = None
        script = self.ollama.script(str(question["model"]))
        try:
            status, body = runner.chat(asked)
            if status == 400 and (question.get("truncate") is not False or script.get("is_old")):
                room = self.ollama._load_context
                cut = room - max((room - 4) // 2, 1)
                last = {**messages[-1], "content": messages[-1]["content"][-(cut // 2) :]}
                status, body = runner.chat({**asked, "messages": [last]})
        except RunnerEnded as error:
            raise Refused(500, "llama-server process has terminated: signal: killed") from error
        if status == 400:
            words = "the prompt is longer than the context length currently available to the model"
            raise Refused(400, f"{words}; shorten the prompt")
        if status != 200:
            raise Refused(500, json.dumps(body))
        choice, usage = body["choices"][0], body["usage"]
        return {
            "message": {"role": "assistant", "content": choice["message"]["content"] or ""},
            "done_reason": choice["finish_reason"],
            "total_duration": 1_000_000,
            "prompt_eval_count": cut or usage["prompt_tokens"],
            "eval_count": usage["completion_tokens"],
        }

    def _about(self) -> dict[str, Any]:
        kept = ("OLLAMA_", "LLAMA_", "CUDA_", "ROCR_", "HIP_", "NVIDIA_")
        return {
            "environment": {key: value for key, value in os.environ.items() if key.startswith(kept)},
            "loads": self.ollama.loads,
            "pulls": self.ollama.pulls,
            "asked": self.ollama.asked,
            "has_card": has_card(),
        }

    def _world(self, question: dict[str, Any]) -> None:
        if question.get("pause_runner") and self.ollama._runner is not None:
            self.ollama._runner.process.send_signal(signal.SIGSTOP)
        if question.get("kill_runner"):
            self.ollama.kill_runner()
        if "hang" in question:
            self.ollama.is_hung = bool(question["hang"])
        self._json(200, {})
        if "exit" in question:
            print(question.get("says", ""), file=sys.stderr, flush=True)
            os._exit(int(question["exit"]))

    def _hangs(self) -> bool:
        if not self.ollama.is_hung or self.path == "/standin":
            return False
        time.sleep(3600)
        return True

    def _is_foreign(self) -> bool:
        host = (self.headers.get("host") or "").rsplit(":", 1)[0]
        if not self.is_local or host in LOCAL:
            return False
        self._send(403, b"", "text/plain")
        return True

    def _json(self, status: int, body: object) -> None:
        self._send(status, json.dumps(body).encode(), "application/json; charset=utf-8")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        try:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base's own name
        """One line a request, as Ollama writes one."""
        print(f"[GIN] {self.command} {self.path} {format % arguments}", file=sys.stderr, flush=True)


class Server(ThreadingHTTPServer):
    """Connections in threads that end with the program."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients leave; that is no news."""


def main() -> int:
    """Serve until asked to end, which ends with 0."""
    host, _, port = os.environ.get("OLLAMA_HOST", "127.0.0.1:11434").rpartition(":")
    Handler.ollama = Ollama()
    Handler.is_local = host in LOCAL
    server = Server((host, int(port)), Handler)

    def end(number: int, frame: object) -> None:
        Handler.ollama.unload_now()
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    print(f"Listening on {host}:{server.server_address[1]} (version {VERSION})", file=sys.stderr, flush=True)
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
