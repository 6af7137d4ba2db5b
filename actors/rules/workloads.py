"""Which workload a command may name, and in which phase (F13, F19, F23, F25)."""

from actors.rules.refusal import Refusal
from actors.state.keys import Key
from actors.state.workloads import Deployment, Job
from actors.state.world import World


def deployment_to_end(key: Key, identifier: str, world: World) -> Deployment:
    """The deployment that an undeploy names.

    Raises:
        Refusal: UNKNOWN_DEPLOYMENT (also for another holder's: a refusal names only what the key may see),
            DEPLOYMENT_ENDING.
    """
    deployment = world.deployments.get(identifier)
    if deployment is None or not (key.sees_all or deployment.holder == key.holder):
        raise _unknown(identifier)
    if deployment.phase == "ending":
        raise Refusal(
            "DEPLOYMENT_ENDING",
            f"{identifier} is ending already; its last event follows on the event stream",
            deployment=identifier,
        )
    return deployment


def deployment_to_prompt(
    key: Key, identifier: str, world: World, *, max_tokens: int | None = None
) -> Deployment:
    """The deployment that a prompt names: the caller's own, and ready.

    Raises:
        Refusal: UNKNOWN_DEPLOYMENT, DEPLOYMENT_NOT_READY, DEPLOYMENT_ENDING, MAX_TOKENS_TOO_LARGE: an answer
            that long fits no conversation with it, which not every engine checks.
    """
    deployment = world.deployments.get(identifier)
    if deployment is None or deployment.holder != key.holder:
        raise _unknown(identifier)
    if deployment.phase == "ending":
        raise Refusal(
            "DEPLOYMENT_ENDING",
            f"{identifier} is ending and takes no more prompts; deploy the model again and prompt that one",
            deployment=identifier,
        )
    if deployment.phase != "ready":
        raise Refusal(
            "DEPLOYMENT_NOT_READY",
            f"{identifier} is {deployment.phase}; wait for DeploymentReady under the deploy's correlation id",
            deployment=identifier,
            phase=deployment.phase,
        )
    most = deployment.context_tokens
    if most is not None and max_tokens is not None and max_tokens > most:
        raise Refusal(
            "MAX_TOKENS_TOO_LARGE",
            f"a conversation with {identifier} holds {most} tokens, its question and its answer together; "
            f"{max_tokens} were asked for the answer: ask for fewer, or leave max_tokens out",
            deployment=identifier,
            requested=max_tokens,
            limit=most,
        )
    return deployment


def job_to_stop(key: Key, identifier: str, world: World) -> Job:
    """The job that a stop-job names.

    Raises:
        Refusal: UNKNOWN_JOB (also for another holder's), JOB_ENDING.
    """
    job = world.jobs.get(identifier)
    if job is None or not (key.sees_all or job.holder == key.holder):
        raise unknown_job(identifier)
    if job.phase == "ending":
        raise Refusal(
            "JOB_ENDING",
            f"{identifier} is being stopped already; its last event follows on the event stream",
            job=identifier,
        )
    return job


def unknown_job(identifier: str) -> Refusal:
    """There is no such job for this key: ended, never there, or another's."""
    return Refusal(
        "UNKNOWN_JOB",
        f"this key has no job {identifier}; the get-workloads query lists its own that have not ended",
        job=identifier,
    )


def _unknown(identifier: str) -> Refusal:
    return Refusal(
        "UNKNOWN_DEPLOYMENT",
        f"this key has no deployment {identifier}; the get-workloads query lists its own",
        deployment=identifier,
    )
