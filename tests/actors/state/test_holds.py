"""The fold of holds: one a device, the newer in place of the older (F29)."""

from actors.state.holds import HELD, Hold, Holds


def held(identifier: str, device: str, *, every: bool = False) -> Hold:
    return Hold(identifier, device, device, "2026-11-30T00:00:00.000Z", every_device=every)


def ids(holds: Holds) -> dict[str, str]:
    return {each.device_uuid: each.id for each in holds}


def test_a_release_of_an_older_hold_leaves_the_newer() -> None:
    holds = Holds()
    for identifier in ("older", "newer"):
        holds.take(held(identifier, "gpu"))
    holds.release("older", "gpu")
    holds.release("older", "cpu")
    assert ids(holds) == {"gpu": "newer"}
    holds.release("newer", "gpu")
    assert (len(holds), holds.on("gpu")) == (0, None)


def test_a_hold_of_every_device_is_of_those_that_were_not_told_of_too() -> None:
    holds = Holds()
    holds.take(held("all", "gpu", every=True))
    holds.take(held("all", "cpu", every=True))
    assert holds.on("later") is not None
    holds.release("all", "gpu")
    assert holds.on("gpu") is None
    assert holds.on("later") is not None
    holds.take(held("one", "cpu"))
    assert holds.on("later") is None, "it holds nothing any more that could be released"


def test_a_newer_hold_of_every_device_begins_anew() -> None:
    holds = Holds()
    holds.take(held("all", "cpu", every=True))
    holds.release("all", "gpu")
    holds.take(held("again", "cpu", every=True))
    assert holds.on("gpu") is not None
    holds.release("again", "cpu")
    assert holds.on("gpu") is None


def test_it_stands_until_its_time_and_without_one_for_ever() -> None:
    until = Hold("h", "gpu", "gpu", "t", until="2026-11-30T00:00:01.000Z")
    assert until.stands_at("2026-11-30T00:00:00.999Z")
    assert not until.stands_at("2026-11-30T00:00:01.000Z")
    assert held("h", "gpu").stands_at("9999-12-31T23:59:59.999Z")


def test_whose_work_ends_reads_the_owners_reason_behind_the_words() -> None:
    assert held("h", "gpu").words == HELD
    assert Hold("h", "gpu", "gpu", "t", reason="maintenance").words == "held by its owner: maintenance"
