"""What an approval may say (F12). More than the most is refused, never cut."""

from actors.rules.refusal import Refusal
from actors.state.keys import SCOPES, Grant, Scope

DURABLE_SECONDS = 366 * 86_400
SESSION_SECONDS = 8 * 3600

TENANT_SCOPES: tuple[Scope, ...] = ("deploy", "jobs", "prompt", "workspaces")
"""Every command, on its own workloads alone."""

LEAST_MEMORY_BYTES = 1 << 20
"""Nothing fits in less: a share so small is a number whose unit was forgotten."""

MOST_MEMORY_BYTES = 1 << 50
MOST_COUNT = 1_000_000


def scopes_when_unsaid(memory_bytes: int | None) -> tuple[Scope, ...]:
    """What a key may do when its approver said nothing of it: everything, or with a share a tenant's part."""
    return ("all",) if memory_bytes is None else TENANT_SCOPES


def check_asked(grant: Grant, *, is_session: bool) -> Grant:
    """A grant as its owner asks for it: it holds together, and every option of it means something.

    What an approver makes of it is held to `check_grant` alone: of fewer scopes figures may be left over.

    Raises:
        Refusal: INVALID_GRANT, with what is allowed.
    """
    check_grant(grant, is_session=is_session)
    idle = {option: scope for option, scope, said in _of_one_scope(grant) if said and not _has(grant, scope)}
    if idle:
        options, scopes = list(idle), [*grant.scopes, *dict.fromkeys(idle.values())]
        raise Refusal(
            "INVALID_GRANT",
            f"{' and '.join(options)} would mean nothing to a key for {' and '.join(grant.scopes)}; "
            f"leave that out, or approve it with --may {','.join(scopes)}",
            options=options,
        )
    return grant


def check_grant(grant: Grant, *, is_session: bool) -> Grant:
    """A grant that holds together; a session's ends after eight hours when nothing was said.

    Raises:
        Refusal: INVALID_GRANT, with what is allowed.
    """
    unknown = [s for s in grant.scopes if s not in SCOPES]
    if unknown or not grant.scopes:
        raise Refusal(
            "INVALID_GRANT",
            f"--may takes {', '.join(SCOPES)}, not {', '.join(unknown) or 'nothing'}",
            scopes=list(SCOPES),
        )
    if "metrics" in grant.scopes and len(grant.scopes) > 1:
        raise Refusal(
            "INVALID_GRANT",
            "metrics stands alone: a key that reads the whole door's metrics may do nothing else; "
            "approve a second sign-in for the other scopes",
            scopes=list(grant.scopes),
        )
    unread = [option for option, said in _about_workloads(grant) if said] if "metrics" in grant.scopes else []
    if unread:
        raise Refusal(
            "INVALID_GRANT",
            f"a key for metrics runs nothing, so {' and '.join(unread)} would mean nothing; "
            "leave that out, or approve other scopes",
            options=unread,
        )
    most = SESSION_SECONDS if is_session else DURABLE_SECONDS
    seconds = grant.expires_seconds
    if seconds is not None and not 1 <= seconds <= most:
        limit = "8h, since the agent asked for a session" if is_session else "366d"
        raise Refusal(
            "INVALID_GRANT",
            f"--expires takes 1s to {limit}, not {_duration(seconds)}",
            limit_seconds=most,
        )
    share = grant.memory_bytes
    if share is not None and not LEAST_MEMORY_BYTES <= share <= MOST_MEMORY_BYTES:
        raise Refusal(
            "INVALID_GRANT",
            f"--memory takes 1M to 1024T, not {share} bytes; write a share with its unit, --memory 40G",
            field="memory_bytes",
        )
    for name in ("deployments", "jobs", "workspaces"):
        value = getattr(grant, name)
        if value is not None and not 0 <= value <= MOST_COUNT:
            raise Refusal("INVALID_GRANT", f"{name} takes 0 to {MOST_COUNT}, not {value}", field=name)
    return grant


def without_use(grant: Grant) -> tuple[str, ...]:
    """What a grant allows and nothing can come of, as sentences without a subject; none for most.

    Such a grant can be: its approver is told, and may mean to widen it with a later sign-in.
    """
    both = "--may deploy,prompt lets it do both"
    if _has(grant, "prompt") and not _has(grant, "deploy"):
        return (f"can prompt nothing: a key prompts what it deployed itself, and it may not deploy; {both}",)
    if _has(grant, "deploy") and not _has(grant, "prompt"):
        return (f"deploys what nobody can prompt: only the key that deployed may, and it may not; {both}",)
    return ()


def wider(asked: Grant, granted: Grant) -> tuple[str, ...]:
    """The options in which a grant goes beyond what was asked for; none where it is at most that.

    A key's life is compared as it was asked: nothing said is without end, or a session's.
    """
    found = []
    if "all" not in asked.scopes and not set(granted.scopes) <= set(asked.scopes):
        found.append("--may")
    found += [
        option
        for option, most, given in (
            ("--memory", asked.memory_bytes, granted.memory_bytes),
            ("--deployments", asked.deployments, granted.deployments),
            ("--jobs", asked.jobs, granted.jobs),
            ("--workspaces", asked.workspaces, granted.workspaces),
            ("--expires", asked.expires_seconds, granted.expires_seconds),
        )
        if most is not None and (given is None or given > most)
    ]
    if _opens_jobs(granted) and not _opens_jobs(asked):
        found.append("--open-jobs")
    if asked.accelerators_only and not granted.accelerators_only:
        found.append("--accelerators-only")
    return tuple(found)


def _opens_jobs(grant: Grant) -> bool:
    # A key without a share is the owner's own: there is no box to open.
    return grant.memory_bytes is None or grant.open_jobs


def default_expiry(grant: Grant, *, is_session: bool) -> int | None:
    """Seconds a key lives from its issue; None is until revoked."""
    if grant.expires_seconds is not None:
        return grant.expires_seconds
    return SESSION_SECONDS if is_session else None


def _about_workloads(grant: Grant) -> tuple[tuple[str, bool], ...]:
    """The options that say something of what a key runs, and whether each was given."""
    return (
        ("--memory", grant.memory_bytes is not None),
        ("--deployments", grant.deployments is not None),
        ("--jobs", grant.jobs is not None),
        ("--workspaces", grant.workspaces != Grant().workspaces),
        ("--open-jobs", grant.open_jobs),
        ("--accelerators-only", grant.accelerators_only),
    )


def _of_one_scope(grant: Grant) -> tuple[tuple[str, Scope, bool], ...]:
    """The options that bound what one scope allows, that scope, and whether each was given.

    A share is none of them: it makes a key a tenant's. Nor is `--accelerators-only`, which hides a device.
    """
    return (
        ("--deployments", "deploy", grant.deployments is not None),
        ("--jobs", "jobs", grant.jobs is not None),
        ("--open-jobs", "jobs", grant.open_jobs),
        ("--workspaces", "workspaces", grant.workspaces != Grant().workspaces),
    )


def _has(grant: Grant, scope: Scope) -> bool:
    return scope in grant.scopes or "all" in grant.scopes


def _duration(seconds: int) -> str:
    """As `--expires` takes it, in the largest unit that divides it."""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
