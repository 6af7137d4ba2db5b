"""What each kind of key sees where it may look: the rules of F5, F12, F16 and F36, written by hand.

A fact or a series that is not named here is nobody's yet: the test says so when the product has it.
"""

from __future__ import annotations

from typing import Final, Literal

from tests.support.permissions.ground import CARD, CPU, HELD
from tests.support.permissions.kinds import Kind

Readers = Literal["its holder", "its holder and all", "all"]
"""Whose a fact is to read: `all` are the keys approved for that."""

FACTS: Final[dict[str, Readers]] = {
    "ImagePulling": "its holder and all",
    "ImagePulled": "its holder and all",
    "DeploymentStarted": "its holder and all",
    "WeightsLoading": "its holder and all",
    "DeploymentReady": "its holder and all",
    "DeploymentFailed": "its holder and all",
    "DeploymentEnded": "its holder and all",
    "OutOfMemory": "its holder and all",
    "Undeployed": "its holder and all",
    "PromptAnswered": "its holder",
    "PromptFailed": "its holder",
    "JobStarted": "its holder and all",
    "JobFinished": "its holder and all",
    "JobFailed": "its holder and all",
    "JobStopped": "its holder and all",
    "CommandFailed": "its holder",
    "AgentRevoked": "its holder",
    "DeviceHeldV1": "all",
    "DeviceReleasedV1": "all",
}
"""Never another holder's prompts, answers or failures; the owner's holds are told to `all` keys alone."""

Scrapers = Literal["every key", "its holder, all and metrics", "all and metrics"]

SERIES: Final[dict[str, Scrapers]] = {
    "best_peer_info": "every key",
    "best_peer_hardware_readable": "every key",
    "best_peer_device_info": "every key",
    "best_peer_device_memory_total_bytes": "every key",
    "best_peer_device_memory_free_bytes": "every key",
    "best_peer_device_memory_promised_bytes": "all and metrics",
    "best_peer_device_utilisation_ratio": "every key",
    "best_peer_device_temperature_celsius": "every key",
    "best_peer_device_power_watts": "every key",
    "best_peer_device_energy_joules_total": "every key",
    "best_peer_deployment_info": "its holder, all and metrics",
    "best_peer_deployment_phase": "its holder, all and metrics",
    "best_peer_deployment_memory_promised_bytes": "its holder, all and metrics",
    "best_peer_job_info": "its holder, all and metrics",
    "best_peer_job_phase": "its holder, all and metrics",
    "best_peer_job_memory_promised_bytes": "its holder, all and metrics",
    "best_peer_prompts_total": "its holder, all and metrics",
    "best_peer_prompt_tokens_total": "its holder, all and metrics",
    "best_peer_commands_accepted_total": "all and metrics",
    "best_peer_commands_refused_total": "all and metrics",
    "best_peer_events_total": "all and metrics",
    "best_peer_event_streams": "all and metrics",
}


def reads_fact(kind: Kind, fact: str, *, own: bool) -> bool:
    """Whether a kind of key reads a fact of its own, or of another holder or of nobody."""
    readers = FACTS[fact]
    if readers == "all":
        return kind.sees_all
    return own or (kind.sees_all and readers == "its holder and all")


def scrapes_all(kind: Kind) -> bool:
    """Whether a kind of key finds everybody's figures among the metrics."""
    return kind.sees_all or kind.is_collectors


def finds_series(kind: Kind, series: str) -> bool:
    """Whether a kind of key that holds a deployment and a job finds a series at all.

    A collector's holds nothing, and finds the others'.
    """
    return SERIES[series] != "all and metrics" or scrapes_all(kind)


def devices_of(kind: Kind) -> set[str]:
    """The devices that a kind of key is shown, by id."""
    return {CARD.id, HELD.id} if kind.accelerators_only else {CARD.id, HELD.id, CPU.id}
