"""Whether an image may be ordered of this peer at all, before anything is asked of anyone (F22, F25)."""

from actors.rules.refusal import Refusal
from adapters.images.port import Images, InvalidReference


def check_image(images: Images | None, reference: str, *, runtime: str) -> None:
    """Check that there are images here, and that a text names one.

    Args:
        images: the runtime's, None where it has none.
        reference: as it was sent.
        runtime: the runtime's name.

    Raises:
        Refusal: IMAGES_UNAVAILABLE, INVALID_IMAGE.
    """
    if images is None:
        raise Refusal(
            "IMAGES_UNAVAILABLE",
            f"this peer's runtime ({runtime}) runs no containers, so it has no images; "
            "deploy a model with an engine that get-hardware-state lists, which needs none, "
            "or send it to a peer that runs containers",
            runtime=runtime,
        )
    try:
        images.check(reference)
    except InvalidReference as fault:
        raise Refusal(
            fault.code, f"{fault.reason}; {fault.fix}", fix=fault.fix, field="/data/image"
        ) from fault
