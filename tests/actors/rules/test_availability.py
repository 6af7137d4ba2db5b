"""What a hold and a use by others come to, and how a refusal says it (F28, F29)."""

from actors.rules.availability import Availability, availability_of, device_busy, host_busy, is_free
from actors.state.holds import HOST, Hold
from adapters.gpu.fake import cpu_device, cuda_device

UNTIL = "2026-10-20T22:00:00.000Z"
HELD = Hold("hold-1", "gpu-0", "GPU-0", "2026-10-20T20:00:00.000Z", UNTIL, "maintenance")


def test_a_device_that_nobody_holds_or_uses_is_free() -> None:
    assert availability_of(None, is_used=False).is_free
    assert is_free({}, "GPU-1")


def test_of_a_use_nothing_is_said_but_that_it_is() -> None:
    assert availability_of(None, is_used=True) == Availability(is_free=False)


def test_a_hold_says_until_when_and_why_where_it_knows() -> None:
    assert availability_of(HELD, is_used=False).known() == {"until": UNTIL, "reason": "maintenance"}
    assert availability_of(Hold("hold-1", "cpu", "cpu", "t"), is_used=False).known() == {}


def test_when_a_held_device_that_is_used_as_well_frees_nobody_knows() -> None:
    assert availability_of(HELD, is_used=True).known() == {"reason": "maintenance"}


def test_a_held_device_is_refused_in_the_owners_words() -> None:
    card = cuda_device()
    refused = device_busy([card], {card.uuid: availability_of(HELD, is_used=False)})
    assert refused.code == "DEVICE_BUSY"
    assert refused.message == (
        f"gpu-0 is held by its owner until {UNTIL} (maintenance) and takes no new work; "
        "send it again then, or name another device"
    )
    assert refused.details == {"device": "gpu-0", "until": UNTIL, "reason": "maintenance"}


def test_a_used_device_is_refused_without_a_word_of_its_use() -> None:
    cpu = cpu_device()
    refused = device_busy([cpu], {cpu.uuid: availability_of(None, is_used=True)})
    assert "held" not in refused.message
    assert "send it again later" in refused.message
    assert refused.details == {"device": "cpu"}


def test_a_job_without_a_device_is_told_how_to_have_one() -> None:
    refused = host_busy({HOST: availability_of(Hold("hold-1", "cpu", HOST, "t"), is_used=False)})
    assert refused.details == {"device": "cpu"}
    assert "held by its owner" in refused.message
    assert "name a device" in refused.message
