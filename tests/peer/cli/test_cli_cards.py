"""`best-peer status` on a machine with cards: how they and their driver are, and whose programs are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peer.cli.conftest import FakeDoor, Ran

STATUS = "GET /admin/status"
DEPLOYMENT = "dep-AbCdEfGhIjKlMnOpQrStUv"
GIB = 1 << 30


def device(number: int, **more: Any) -> dict[str, Any]:
    return {
        "id": f"gpu-{number}",
        "uuid": f"GPU-{number}",
        "name": "NVIDIA H200",
        "memory_total_bytes": 141 * GIB,
        "memory_free_bytes": 100 * GIB,
        "memory_promised_bytes": 0,
        "availability": {"state": "free"},
        "condition": "ready",
        **more,
    }


def card(number: int, **more: Any) -> dict[str, Any]:
    return {"uuid": f"GPU-{number}", "known": True, "own": [], "others": [], "unsure": [], "gone": [], **more}


def program(pid: int, **more: Any) -> dict[str, Any]:
    return {"pid": pid, "kind": "compute", "memory_bytes": GIB, "name": "python3", **more}


def shown(door: FakeDoor, cli: Callable[..., Ran], **more: Any) -> list[str]:
    door.answers[STATUS] = 200, {"keys": [], "devices": [device(0)], "workloads": {}, **more}
    ran = cli("status")
    assert (ran.code, ran.err) == (0, "")
    return [" ".join(line.split()) for line in ran.out.splitlines()]


def test_each_program_on_a_card_is_shown_with_whose_it_is(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    cards = [
        card(
            0,
            own=[program(7, workload=DEPLOYMENT, utilisation_ratio=0.5)],
            others=[program(8, name="blender", memory_bytes=None)],
            unsure=[program(9)],
            gone=[{"pid": 10, "kind": "compute", "memory_bytes": GIB}],
        )
    ]
    lines = shown(door, cli, cards=cards)
    assert f"gpu-0 7 python3 {DEPLOYMENT} 1 GiB 50%" in lines
    assert "gpu-0 8 blender not the peer's unknown unknown" in lines
    assert "gpu-0 9 python3 unknown 1 GiB unknown" in lines
    assert "gpu-0 10 unknown ended 1 GiB unknown" in lines


def test_a_card_of_which_nothing_is_known_says_so_and_an_idle_one_that_nobody_is_there(
    door: FakeDoor, cli: Callable[..., Ran]
) -> None:
    lines = shown(door, cli, cards=[{"uuid": "GPU-0", "known": False}])
    assert "gpu-0 unknown the driver does not say unknown unknown unknown" in lines
    assert "Nobody uses a card." in shown(door, cli, cards=[card(0)])
    assert "Programs on the cards" not in shown(door, cli, cards=[])


def test_a_card_that_cannot_be_used_says_why_and_the_driver_how_to_mend_it(
    door: FakeDoor, cli: Callable[..., Ran]
) -> None:
    reason = "the driver lost the card: see dmesg"
    lost = device(0, condition="lost", condition_reason=reason, memory_free_bytes=None)
    fault = {"code": "DRIVER_LATE", "reason": "it did not answer", "fix": "restart the machine"}
    driver = {"condition": "late", "version": "580.65", "unreadable": 1, "fault": fault}
    lines = shown(door, cli, devices=[lost, device(1)], driver=driver)
    assert "gpu-0 NVIDIA H200 141 GiB unknown 0 bytes unknown lost" in lines
    assert "gpu-1 NVIDIA H200 141 GiB 100 GiB 0 bytes unknown free" in lines
    assert f"gpu-0 {reason}" in lines
    assert "driver 580.65, late" in lines
    assert "1 of its cards cannot be told apart and are not served" in lines
    assert "to mend it: restart the machine" in lines


def test_a_healthy_machine_has_no_table_of_what_is_wrong(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    lines = shown(door, cli, driver={"condition": "ready", "version": "580.65"})
    assert "driver 580.65, ready" in lines
    assert "Not to be used" not in lines


def test_a_strangers_name_does_not_act_on_the_terminal(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    door.answers[STATUS] = (
        200,
        {"devices": [device(0)], "cards": [card(0, others=[program(8, name="\x1b]0;owned\x07")])]},
    )
    assert all(c.isprintable() or c == "\n" for c in cli("status").out)


def test_json_has_every_program(door: FakeDoor, cli: Callable[..., Ran]) -> None:
    cards = [card(0, others=[program(8)])]
    door.answers[STATUS] = 200, {"cards": cards}
    assert cli("status", "--json").json["cards"] == cards


def test_the_share_of_time_that_a_card_computes_does_not_read_as_memory(
    door: FakeDoor, cli: Callable[..., Ran]
) -> None:
    """Beside total, free and promised memory, "used 97%" would."""
    lines = shown(door, cli, devices=[device(0, utilisation_ratio=0.97)], cards=[card(0)])
    at = lines.index("Devices")
    assert lines[at + 1 : at + 3] == [
        "Device Name Memory Free Promised Compute State",
        "gpu-0 NVIDIA H200 141 GiB 100 GiB 0 bytes 97% free",
    ]
    lines = shown(door, cli, cards=[card(0, others=[program(7, utilisation_ratio=0.5)])])
    at = lines.index("Programs on the cards")
    assert lines[at + 1] == "Device Process Program Whose Memory Compute"
