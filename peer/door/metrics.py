"""GET /metrics: what a collector scrapes, beside the BEST surface and never on it (F36)."""

from typing import Final

import trio
from quart import Request, Response

from actors.metrics import SERIES, Eyes, Scene, samples
from actors.reports import Hardware, Machine
from peer.door.context import Door
from peer.door.metrics_text import OPENMETRICS_TYPE, PROMETHEUS_TYPE, Writer, wants_openmetrics

PATH: Final = "/metrics"

READ_SECONDS: Final = 4.0
"""For the driver; past it the scrape goes on without. Collectors give ten seconds and clouds five."""


class Metrics:
    """The telemetry of one door. It keeps no history; every answer is made of what there is."""

    def __init__(self, door: Door, machine: Machine) -> None:
        self._door = door
        self._machine = machine
        self._writer = Writer(SERIES)
        self._events = tuple(sorted(door.catalogue.event_dataschemas))

    async def answer(self, request: Request) -> Response:
        """GET: the series that the key reads.

        Raises:
            Refusal: UNAUTHORIZED.
        """
        eyes = Eyes.of(self._door.metrics_key_of(request))
        hardware: Hardware | None = None
        with trio.move_on_after(READ_SECONDS):
            hardware = await self._machine.hardware()
        openmetrics = wants_openmetrics(",".join(request.headers.getlist("accept")))
        page = self._writer.page(samples(self._scene(hardware), eyes), openmetrics=openmetrics)
        # A cache on the way must not give one collector's page to another, nor the last to the next.
        headers = {"cache-control": "no-store", "vary": "Accept, Authorization, X-Api-Key"}
        return Response(page, 200, headers, content_type=OPENMETRICS_TYPE if openmetrics else PROMETHEUS_TYPE)

    def _scene(self, hardware: Hardware | None) -> Scene:
        door = self._door
        return Scene(
            version=door.version,
            world=door.house.store.world,
            hardware=hardware,
            commands=door.desk.counts,
            events=self._events,
            streams=len(door.streams),
        )
