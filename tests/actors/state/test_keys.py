"""Keys as they follow from their records, also from records in the order a crash may leave (F12, F13)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.state.keys import (
    REMEMBERED_CODES,
    Approved,
    Ending,
    Grant,
    Issued,
    Key,
    KeyRecord,
    KeyRing,
    RanOut,
    Revoked,
    WorkEnded,
)


def key(holder: str = "h-1", name: str = "agent", **more: object) -> Key:
    return Key(holder, name, Grant(), 0, **more)  # type: ignore[arg-type]


def issued(holder: str = "h-1", name: str = "agent") -> Issued:
    return Issued(key=key(holder, name), digest=f"secret-{holder}", device_digest=f"device-{holder}")


def revoked(holder: str = "h-1", *, ends_work: bool = True, at_ms: int = 5) -> Revoked:
    return Revoked(holder=holder, at_ms=at_ms, by="owner", ends_work=ends_work)


def ring(*records: KeyRecord) -> KeyRing:
    made = KeyRing()
    for record in records:
        made.apply(record)
    return made


def test_a_key_is_found_by_its_secret_its_holder_and_its_name() -> None:
    made = ring(issued("h-1", "same"), issued("h-2", "same"), issued("h-3", "other"))
    found = made.by_digest("secret-h-2")
    assert found is not None
    assert found.holder == "h-2"
    assert [k.holder for k in made.named("same")] == ["h-1", "h-2"]
    assert [k.holder for k in made.named("h-3")] == ["h-3"]
    assert made.named("nobody") == ()
    assert made.by_digest("wrong") is None
    assert len(made) == 3


def test_a_revoked_key_opens_nothing_and_its_work_must_end() -> None:
    made = ring(issued(), revoked())
    found = made.get("h-1")
    assert found is not None
    assert not found.is_open(6)
    assert made.ending() == ("h-1",)
    made.apply(WorkEnded(holder="h-1", at_ms=9))
    assert made.ending() == ()


def test_work_that_is_kept_running_is_not_ended() -> None:
    assert ring(issued(), revoked(ends_work=False)).ending() == ()


def test_a_key_closes_before_the_disk_has_kept_its_revoke_and_once() -> None:
    made = ring(issued())
    made.close("h-1", 3, ends_work=True)
    made.apply(revoked(at_ms=7))
    found = made.get("h-1")
    assert found is not None
    assert found.revoked_ms == 3


def test_that_its_work_has_ended_says_nothing_of_a_key_that_is_open() -> None:
    """It would spare what the key runs from the revoke that comes."""
    assert ring(issued(), WorkEnded(holder="h-1", at_ms=1), revoked()).ending() == ("h-1",)


def test_how_a_key_ended_is_told_and_when_its_work_had() -> None:
    """Easily missed 20: the key's line says when it has ended."""
    made = ring(issued(), issued("h-2"))
    assert made.ending_of("h-1") is None
    made.apply(revoked(at_ms=5))
    assert made.ending_of("h-1") == Ending(5, "owner", ends_work=True)
    made.apply(WorkEnded(holder="h-1", at_ms=9))
    made.apply(WorkEnded(holder="h-1", at_ms=11))
    made.apply(revoked(at_ms=12))
    assert made.ending_of("h-1") == Ending(5, "owner", ends_work=True, work_ended_ms=9)
    assert made.ending() == ()
    made.apply(Revoked(holder="h-2", at_ms=6, by="agent", ends_work=False))
    assert made.ending_of("h-2") == Ending(6, "agent", ends_work=False)
    made.apply(revoked("h-2", at_ms=8))
    assert made.ending_of("h-2") == Ending(6, "agent", ends_work=True)
    assert made.ending() == ("h-2",)


def test_a_revoke_of_nobody_changes_nothing() -> None:
    made = ring(revoked("h-9"), WorkEnded(holder="h-9", at_ms=1))
    assert made.ending() == ()
    assert made.all() == ()


def test_an_approval_is_redeemed_once() -> None:
    approved = Approved(
        device_digest="device-h-1",
        user_code="BCDF-GHJK",
        client_id="c",
        name="agent",
        grant=Grant(),
        approved_ms=0,
    )
    made = ring(approved)
    assert made.approved("device-h-1") is approved
    made.redeem("device-h-1")
    assert made.approved("device-h-1") is None
    assert ring(approved, issued()).approved("device-h-1") is None


@pytest.mark.parametrize(("now", "is_open"), [(0, True), (9, True), (10, False), (11, False)])
def test_a_key_ends_at_its_time(now: int, *, is_open: bool) -> None:
    assert key(expires_ms=10).is_open(now) is is_open


def test_a_key_that_was_seen_past_its_end_is_closed_at_any_time_and_may_still_be_revoked() -> None:
    made = ring(issued(), RanOut(holder="h-1", at_ms=10), RanOut(holder="nobody", at_ms=10))
    found = made.by_digest("secret-h-1")
    assert found is not None
    assert found.is_over(0)
    assert not found.is_open(0)
    assert made.ending_of("h-1") is None
    made.apply(revoked())
    assert made.ending() == ("h-1",)


@pytest.mark.parametrize(
    ("scopes", "asked", "may"),
    [
        (("all",), "deploy", True),
        (("all",), "metrics", True),
        (("prompt",), "deploy", False),
        (("prompt",), "any", True),
        (("metrics",), "any", False),
        (("metrics",), "metrics", True),
        (("deploy", "prompt"), "metrics", False),
    ],
)
def test_a_key_may_do_what_its_scopes_say(scopes: tuple[str, ...], asked: str, *, may: bool) -> None:
    """A collector's opens the metrics alone; `any` is every other key's (Easily missed 25)."""
    grant = Grant(scopes=scopes)  # type: ignore[arg-type]
    assert Key("h", "n", grant, 0).may(asked) is may


def test_a_key_approved_with_nothing_said_is_the_owners_and_sees_all() -> None:
    """Easily missed 1."""
    plain = key()
    assert plain.sees_all
    assert not plain.is_tenant


def test_records_of_an_earlier_peer_are_read_as_they_were_meant() -> None:
    """Easily missed 30: an upgrade in place keeps credentials."""
    lines = rb"""
        {"record":"approved","device_digest":"d","user_code":"BCDF-GHJK","client_id":"c","name":"lab","grant":
         {"scopes":["deploy"],"memory_bytes":1,"deployments":null,"jobs":null,"workspaces":8,
          "expires_seconds":60,"open_jobs":false,"accelerators_only":true},"approved_ms":1,"agent_label":null,
         "address":"127.0.0.1"};
        {"record":"issued","key":{"holder":"h-1","name":"lab","grant":{"scopes":["deploy"],"memory_bytes":1},
         "issued_ms":2,"expires_ms":60002},"digest":"secret","device_digest":"d"};
        {"record":"revoked","holder":"h-1","at_ms":3,"by":"agent","ends_work":true};
        {"record":"work-ended","holder":"h-1","at_ms":4}
    """
    decode = msgspec.json.Decoder(KeyRecord).decode
    made = ring(*map(decode, lines.split(b";")))
    found = made.by_digest("secret")
    assert found is not None
    assert (found.name, found.expires_ms, found.grant.memory_bytes) == ("lab", 60_002, 1)
    assert made.ending_of("h-1") == Ending(3, "agent", ends_work=True, work_ended_ms=4)
    assert made.approvals() == ()
    assert made.was_used("BCDF-GHJK")


holders = st.sampled_from(["h-1", "h-2", "h-3"])
record = st.one_of(
    st.builds(issued, holders),
    st.builds(revoked, holders, ends_work=st.booleans(), at_ms=st.integers(1, 99)),
    st.builds(lambda holder: RanOut(holder=holder, at_ms=1), holders),
    st.builds(lambda holder: WorkEnded(holder=holder, at_ms=1), holders),
)


@given(st.lists(record, max_size=20))
@settings(max_examples=100, deadline=None)
def test_records_in_any_order_leave_a_ring_that_holds_together(records: list[KeyRecord]) -> None:
    # A holder's id is random: it is issued once.
    once = [r for n, r in enumerate(records) if not (isinstance(r, Issued) and r in records[:n])]
    made = ring(*once)
    for known in made.all():
        assert made.get(known.holder) is known
        assert known.holder in {k.holder for k in made.named(known.name)}
    for holder in made.ending():
        found = made.get(holder)
        assert found is not None
        assert found.revoked_ms is not None


def test_used_codes_are_known_from_the_records_as_far_as_they_are_remembered() -> None:
    def records(number: int) -> tuple[Approved, Issued]:
        holder = f"h-{number}"
        approved = Approved(
            device_digest=f"device-{holder}",
            user_code=f"code-{number}",
            client_id="an-agent",
            name="agent",
            grant=Grant(),
            approved_ms=0,
        )
        return approved, issued(holder)

    made = ring(*records(0))
    assert made.was_used("code-0")
    approved, _ = records(1)
    made.apply(approved)
    assert not made.was_used("code-1")
    made.redeem("device-h-1")
    assert made.was_used("code-1")
    made.apply(approved)  # its key was not kept
    assert not made.was_used("code-1")
    for number in range(2, REMEMBERED_CODES + 2):
        for record in records(number):
            made.apply(record)
    assert not made.was_used("code-0")
    assert made.was_used(f"code-{REMEMBERED_CODES + 1}")
