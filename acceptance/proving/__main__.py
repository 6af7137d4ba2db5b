"""The command line of `scripts/prove-on-gpu`, which makes the environment that this runs in.

Exit codes: 0 everything was proven; 1 something failed; 2 nothing could be tried; 3 nothing failed, and
something could not be tried on this machine. 128 and the signal's number: broken off, and what was made taken
down.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from acceptance.display import Display
from acceptance.names import Names
from acceptance.problems import Problem, Refused, Unreachable
from acceptance.proving.arguments import read_arguments
from acceptance.proving.host import Card, Docker, about_host, cards
from acceptance.proving.report import Report
from acceptance.proving.service import DoorClient, Service
from acceptance.proving.trials import EngineOrder, Trials


def main(arguments: list[str] | None = None) -> int:
    """Run once; the exit code."""
    given = read_arguments(arguments)
    names = Names()
    display = Display(sys.stderr, sys.stdout, names)
    report = Report(names, display, is_rehearsal=given.rehearse)
    path = given.report or Path(time.strftime("prove-on-gpu-%Y%m%dT%H%M%SZ.json", time.gmtime()))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="best-peer-prove."))
    try:
        code = _run(given, names, display, report, folder)
    except Problem as problem:
        print(f"error: {names.hide(str(problem))}", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        print("broken off; what was made is taken down", file=sys.stderr)
        code = 128 + signal.SIGINT
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if report.checks:
        report.write(path)
        display.say("report", f"{path}: send it back, whatever it says")
    return code


def _run(given: argparse.Namespace, names: Names, display: Display, report: Report, folder: Path) -> int:
    docker = Docker(os.environ.get("DOCKER_HOST"))
    try:
        report.host = about_host(docker)
        real = [] if given.rehearse else cards()
        display.say("host", f"Docker {report.host['docker']['version']}, {len(real)} cards")
        service = _started(given, real, folder, display)
        try:
            _with_peer(given, names, display, report, docker, service)
        finally:
            _take_down(report, docker, service)
        if given.remove_images:
            _remove_images(given, docker, display)
    finally:
        docker.close()
    return report.exit_code


def _started(given: argparse.Namespace, real: list[Card], folder: Path, display: Display) -> Service:
    """A peer that reads the cards, where there are any and it can.

    Raises:
        Refused: it does not start.
    """
    settings = {"BEST_PEER_RUNTIME": "docker", "BEST_PEER_GPU": "nvml" if real else "none"}
    if given.ollama_image:
        settings["BEST_PEER_OLLAMA_IMAGE"] = given.ollama_image
    if given.vllm_image:
        settings["BEST_PEER_VLLM_IMAGE"] = given.vllm_image
    if given.model_store:
        settings["BEST_PEER_MODEL_STORE"] = str(given.model_store.resolve())
    service = Service(given.peer, folder, settings)
    try:
        service.start()
    except Refused as why:
        service.stop()
        if not real or "BEST_PEER_GPU" not in str(why):
            raise
        display.detail(f"{why}; going on without the cards")
        service = Service(given.peer, folder, {**settings, "BEST_PEER_GPU": "none"})
        service.start()
    return service


def _with_peer(
    given: argparse.Namespace,
    names: Names,
    display: Display,
    report: Report,
    docker: Docker,
    service: Service,
) -> None:
    client = DoorClient(service, names, display)
    try:
        trials = Trials(report, client, docker, given.patience, given.device)
        if given.rehearse:
            trials.read_cards = list
        trials.hardware()
        if "ollama" in given.engines:
            trials.engine(EngineOrder("ollama", given.ollama_model, given.ollama_memory))
        if "vllm" in given.engines:
            trials.engine(EngineOrder("vllm", given.vllm_model, given.vllm_memory))
        trials.plain_job(given.job_image)
        trials.job(given.job_image)
        trials.nothing_left(service.instance or "")
    finally:
        client.close()


def _take_down(report: Report, docker: Docker, service: Service) -> None:
    with report.check("stopped", "the peer stops within eight seconds when it is asked to") as check:
        code = service.stop()
        check.figures = {"exit_code": code}
        if code != 0:
            raise Refused(f"it ended with {code}" if code is not None else "it had to be killed")
    report.log = service.lines()
    if service.instance is not None:
        docker.remove_containers_of(service.instance)


def _remove_images(given: argparse.Namespace, docker: Docker, display: Display) -> None:
    for image in (given.ollama_image, given.vllm_image, given.job_image):
        if image:
            try:
                docker.ask("DELETE", f"/images/{image}")
            except Unreachable as why:
                display.detail(f"{image} stays: {why}")


if __name__ == "__main__":
    sys.exit(main())
