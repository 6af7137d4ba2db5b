"""What is tried on a host, one thing after the other; each is a check of the report."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from acceptance.problems import Faulty, Refused
from acceptance.proving.host import Card, Docker, cards
from acceptance.proving.report import NotTried, Report
from acceptance.proving.service import Done, DoorClient, must

MIB = 1024 * 1024
QUESTION = "In one sentence: what is a tide?"
TOKENS = 60
PROBES = 5
FREED_SECONDS = 60.0
FREED_WITHIN_BYTES = 128 * MIB
"""What a driver may keep of a card for itself, once it was used."""
READY = frozenset({"DeploymentReady"})
JOB_ENDS = frozenset({"JobFinished", "JobStopped"})


@dataclass(frozen=True)
class EngineOrder:
    """An engine to try: with which model, and how much of a device."""

    engine: str
    model: str
    memory_bytes: int


@dataclass
class Trials:
    """The parts that the trials share.

    Args:
        report: where their results go.
        client: who asks.
        docker: looked at beside the peer's back.
        patience: seconds for one command.
        wanted: the id of the device to use; None for the first card, or the CPU where there is none.
    """

    report: Report
    client: DoorClient
    docker: Docker
    patience: float
    wanted: str | None = None
    read_cards: Callable[[], list[Card]] = cards
    device: dict[str, Any] = field(default_factory=dict)
    card: Card | None = None

    def hardware(self) -> None:
        """The peer sees the cards that the driver's own tool sees."""
        state = self.client.query("get-hardware-state")
        devices = state["devices"]
        seen = [device for device in devices if any(api["api"] != "cpu" for api in device["apis"])]
        chosen = [device for device in devices if self.wanted in (None, device["id"])]
        if not chosen:
            raise Refused(f"there is no device {self.wanted}; there are {[one['id'] for one in devices]}")
        self.device = chosen[0]
        real = self.read_cards()
        self.card = next((card for card in real if card.uuid == self.device.get("uuid")), None)
        with self.report.check("cards", "the peer lists every card of the driver, with its memory") as check:
            check.figures = {"peer": [_size(one) for one in seen], "driver": [_total(card) for card in real]}
            if not real:
                raise NotTried("nvidia-smi lists no card on this machine")
            if not seen:
                raise NotTried("this peer reads no cards, or was told that there are none")
            lacks = {card.uuid for card in real} - {str(device.get("uuid")) for device in seen}
            if lacks and all(device["slicing"] == "none" for device in seen):
                raise Faulty(f"the peer does not list {len(lacks)} of {len(real)} cards")

    @property
    def is_on_card(self) -> bool:
        """Whether what is tried runs on a card."""
        return bool(self.device) and any(api["api"] != "cpu" for api in self.device["apis"])

    def engine(self, order: EngineOrder) -> None:
        """An engine's whole life: pulled, started, loaded, asked, ended."""
        name = order.engine
        before = self._used()
        with self.report.check(f"{name} ready", f"{name} serves {order.model} as the peer sets it") as check:
            if name == "vllm" and not self.is_on_card:
                raise NotTried("vLLM needs a card")
            done = self._command(
                "deploy-model",
                {
                    "model": order.model,
                    "engine": name,
                    "memory_bytes": order.memory_bytes,
                    "device": self.device["id"],
                },
                ends=READY,
            )
            ready = must(done, "DeploymentReady").data
            check.figures = {
                "image_seconds": done.seconds("ImagePulled"),
                "started_seconds": done.seconds("DeploymentStarted"),
                "ready_seconds": done.seconds("DeploymentReady"),
                "context_tokens": ready.get("context_tokens"),
                "note": ready.get("note"),
            }
            self._served(order, ready, before)
        if check.result == "failed":
            self._leave_nothing(name)

    def job(self, image: str) -> None:
        """A job sees the card it was given, and no other."""
        with self.report.check("job", "a job sees its card with nvidia-smi, and no other") as check:
            if not self.client.offers("run-job"):
                raise NotTried("the peer offers no jobs to this key")
            if not self.is_on_card:
                raise NotTried("there is no card to give it")
            order = {
                "image": image,
                "command": ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"],
                "device": self.device["id"],
            }
            done = self._command("run-job", order, ends=JOB_ENDS)
            finished = must(done, "JobFinished").data
            lines = [line.strip() for line in finished.get("output", ()) if line.strip()]
            check.figures = {"exit_code": finished.get("exit_code"), "cards": len(lines)}
            if finished.get("exit_code") != 0:
                raise Faulty(f"nvidia-smi ended with {finished.get('exit_code')} in the job: {lines[-3:]}")
            if lines != [self.device.get("uuid")]:
                raise Faulty(f"the job sees {len(lines)} cards and not the one it was given")

    def plain_job(self, image: str) -> None:
        """A job at all: what a machine without a card can show."""
        with self.report.check("plain job", "a job runs and its exit code and last lines are told") as check:
            if not self.client.offers("run-job"):
                raise NotTried("the peer offers no jobs to this key")
            order = {"image": image, "command": ["sh", "-c", "echo proven; exit 7"]}
            finished = must(self._command("run-job", order, ends=JOB_ENDS), "JobFinished").data
            check.figures = {"exit_code": finished.get("exit_code")}
            if finished.get("exit_code") != 7 or "proven" not in finished.get("output", ()):
                raise Faulty("the job's exit code or output is not its own")

    def nothing_left(self, instance: str) -> None:
        """Nothing is left of what was ended."""
        with self.report.check("left over", "no workload and no container is left of what ended") as check:
            state = self.client.query("get-workloads")
            left = [*state.get("deployments", []), *state.get("jobs", [])]
            # A container is removed once its last lines were read.
            until = time.monotonic() + FREED_SECONDS
            while (containers := self.docker.containers_of(instance)) and time.monotonic() < until:
                time.sleep(0.5)
            check.figures = {"workloads": len(left), "containers": len(containers)}
            if left or containers:
                raise Faulty(f"{len(left)} workloads and {len(containers)} containers are left")

    def _served(self, order: EngineOrder, ready: dict[str, Any], before: int | None) -> None:
        name, deployment = order.engine, ready["deployment"]
        try:
            self._memory(order, before)
            if name == "ollama":
                with self.report.check(f"{name} place", "the whole model lies where it was placed") as check:
                    if ready.get("note"):
                        raise Faulty(str(ready["note"]))
            with self.report.check(
                f"{name} answer", f"{name} answers a conversation and counts its tokens"
            ) as check:
                data = self._ask(deployment, QUESTION, TOKENS)
                check.figures = {key: data.get(key) for key in ("prompt_tokens", "completion_tokens")}
                if not data.get("content") or not data.get("completion_tokens"):
                    raise Faulty("the answer is empty, or its tokens are not counted")
            with self.report.check(
                f"{name} token", "one token takes little time: what a probe costs"
            ) as check:
                took = []
                for _ in range(PROBES):
                    began = time.monotonic()
                    self._ask(deployment, "Hi", 1)
                    took.append(time.monotonic() - began)
                check.figures = {"median_seconds": round(statistics.median(took), 3)}
        finally:
            self._end(name, deployment, before)

    def _memory(self, order: EngineOrder, before: int | None) -> None:
        name = order.engine
        with self.report.check(
            f"{name} memory", f"{name} stays below its promise by the driver's figure"
        ) as check:
            now = self._used()
            if before is None or now is None:
                raise NotTried("there is no card whose memory could be read")
            check.figures = {
                "promised_bytes": order.memory_bytes,
                "taken_bytes": now - before,
                "others_taken_bytes": self._others(),
            }
            if now - before > order.memory_bytes:
                raise Faulty(f"it took {now - before} bytes and was promised {order.memory_bytes}")

    def _end(self, name: str, deployment: str, before: int | None) -> None:
        with self.report.check(
            f"{name} ended", f"{name} is undeployed and its memory is free again"
        ) as check:
            order = {"deployment": deployment}
            must(self._command("undeploy-model", order, ends=frozenset({"Undeployed"})), "Undeployed")
            if before is None:
                return
            until = time.monotonic() + FREED_SECONDS
            while (now := self._used()) is not None and now > before + FREED_WITHIN_BYTES:
                if time.monotonic() > until:
                    raise Faulty(f"{now - before} bytes of the card are still in use")
                time.sleep(1)
            check.figures = {"left_bytes": None if now is None else now - before}

    def _leave_nothing(self, engine: str) -> None:
        """End what a failed trial may have left, so that the next has the device for itself."""
        for deployment in self.client.query("get-workloads").get("deployments", []):
            if deployment.get("engine") == engine:
                order = {"deployment": deployment["deployment"]}
                self._command("undeploy-model", order, ends=frozenset({"Undeployed"}))

    def _ask(self, deployment: str, question: str, tokens: int) -> dict[str, Any]:
        order = {
            "deployment": deployment,
            "messages": [{"role": "user", "content": question}],
            "max_tokens": tokens,
            "temperature": 0,
        }
        done = self._command("prompt", order, ends=frozenset({"PromptAnswered"}))
        return must(done, "PromptAnswered").data

    def _command(self, name: str, data: dict[str, Any], *, ends: frozenset[str]) -> Done:
        done = self.client.command(name, data, ends=ends, patience=self.patience)
        self.report.command(name, done.told())
        return done

    def _used(self) -> int | None:
        if self.card is None:
            return None
        return next(
            (card.memory_used_bytes for card in self.read_cards() if card.uuid == self.card.uuid), None
        )

    def _others(self) -> dict[str, int]:
        """What the cards hold that nothing was placed on."""
        chosen = None if self.card is None else self.card.uuid
        return {
            f"card {card.index}": card.memory_used_bytes for card in self.read_cards() if card.uuid != chosen
        }


def _size(device: dict[str, Any]) -> dict[str, Any]:
    return {name: device.get(name) for name in ("id", "name", "memory_total_bytes", "slicing", "isolation")}


def _total(card: Card) -> dict[str, Any]:
    return {
        "name": card.name,
        "memory_total_bytes": card.memory_total_bytes,
        "driver": card.driver,
        "compute_capability": card.compute_capability,
    }
