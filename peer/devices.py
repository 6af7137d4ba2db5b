"""What this machine's devices are read through, chosen by BEST_PEER_GPU (F17)."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from adapters.gpu.host import HostGpu
from adapters.gpu.joined import JoinedGpu
from adapters.gpu.nvml import NvmlGpu
from adapters.gpu.port import DriverUnavailable, Gpu
from adapters.pids import are_the_machines
from peer.settings import Settings

logger = logging.getLogger("best_peer.peer")

PROC: Final = Path("/proc")

BLIND: Final = (
    "this program does not see the machine's processes, so that whose a program on a card is cannot be told "
    "where it is not the peer's, and your own use of a card not noticed: run it with the host's processes "
    "(docker run --pid=host), or with a /proc that shows those of other users (mounted without hidepid, no "
    "ProtectProc in its systemd unit)"
)


class DriverRefused(Exception):
    """Raised when the driver that was asked for cannot be used; the text is one line, with what to do."""


@asynccontextmanager
async def open_gpu(settings: Settings) -> AsyncIterator[Gpu]:
    """Hold open what the devices are read through, until the block is left.

    Raises:
        DriverRefused: there is no driver that answers, or it has no card, and as long as the settings say it
            was waited for.
    """
    if settings.gpu == "none":
        yield HostGpu()
        return
    cards = NvmlGpu()
    try:
        if settings.driver_wait:
            logger.info("waiting for the NVIDIA driver, %d s at most", settings.driver_wait)
        try:
            await cards.wait_for_driver(settings.driver_wait)
        except DriverUnavailable as fault:
            raise DriverRefused(f"{fault.reason}; {fault.fix}") from fault
        logger.info("cards through the NVIDIA driver %s", cards.state.driver_version or "of unknown version")
        if not await trio.to_thread.run_sync(are_the_machines, PROC):
            logger.warning(BLIND)
        yield JoinedGpu(cards, HostGpu())
    finally:
        await cards.aclose()
