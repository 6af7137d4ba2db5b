"""What a key may still hold: memory across its workloads, and how many of each (F12)."""

from actors.rules.refusal import Refusal
from actors.state.keys import Key
from actors.state.promises import Holding


def check_deployment(key: Key, holding: Holding, memory_bytes: int) -> None:
    """Whether one more deployment fits the key's share and count.

    Raises:
        Refusal: SHARE_EXCEEDED, DEPLOYMENTS_EXCEEDED, with what is held and what is left.
    """
    most = key.grant.deployments
    if most is not None and len(holding.deployments) >= most:
        remedy = (
            "undeploy one first" if holding.deployments else "ask the owner of the machine for a key that may"
        )
        raise Refusal(
            "DEPLOYMENTS_EXCEEDED",
            f"this key may run {most} {'deployment' if most == 1 else 'deployments'} at once and runs "
            f"{len(holding.deployments)}; {remedy}",
            held=len(holding.deployments),
            limit=most,
        )
    check_memory(key, holding, memory_bytes)


def check_job(key: Key, holding: Holding, memory_bytes: int | None) -> None:
    """Whether one more job fits the key's share and count; those accepted and not started count as well.

    A key with a share runs its jobs where that counts them: each is promised some of it.

    Raises:
        Refusal: SHARE_EXCEEDED, JOBS_EXCEEDED, JOB_NEEDS_DEVICE, with what is held and what is left.
    """
    most = key.grant.jobs
    if most is not None and len(holding.jobs) >= most:
        remedy = (
            "wait for one to end, or stop one"
            if holding.jobs
            else "ask the owner of the machine for a key that may"
        )
        kind = "job" if most == 1 else "jobs"
        raise Refusal(
            "JOBS_EXCEEDED",
            f"this key may run {most} {kind} at once and runs {len(holding.jobs)}; {remedy}",
            held=len(holding.jobs),
            limit=most,
        )
    share = key.grant.memory_bytes
    if memory_bytes is None and share is not None:
        left = max(0, share - holding.memory_bytes)
        raise Refusal(
            "JOB_NEEDS_DEVICE",
            f"this key may hold {share} bytes of device memory and holds {holding.memory_bytes}; a job that "
            f"is promised none would run outside of that: send memory_bytes, {left} at most",
            held_bytes=holding.memory_bytes,
            share_bytes=share,
            available_bytes=left,
        )
    check_memory(key, holding, memory_bytes or 0)


def check_memory(key: Key, holding: Holding, memory_bytes: int) -> None:
    """Whether the key's share has this much left.

    Raises:
        Refusal: SHARE_EXCEEDED.
    """
    share = key.grant.memory_bytes
    if share is not None and holding.memory_bytes + memory_bytes > share:
        left = max(0, share - holding.memory_bytes)
        raise Refusal(
            "SHARE_EXCEEDED",
            f"this key may hold {share} bytes of device memory and holds {holding.memory_bytes}; "
            f"ask for {left} at most, or end a workload of yours first",
            held_bytes=holding.memory_bytes,
            share_bytes=share,
            available_bytes=left,
            requested_bytes=memory_bytes,
        )
