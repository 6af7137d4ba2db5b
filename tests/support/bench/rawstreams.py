"""The baseline of event streams: sockets on Trio, one shared list of frames, and a cursor for each reader.

It sends the same frames to the same clients as the door does and knows nothing else: no keys, no filters,
no log, no HTTP beyond a head. It is asked by the same questions as the server under test.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import trio

from tests.support.bench import control

_BATCH = 256
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: open\n\n"


class Frames:
    """What was told, and who waits for more."""

    def __init__(self, line: bytes) -> None:
        self._line = line
        self._frames: list[bytes] = []
        self._news = trio.Event()

    def tell(self, facts: int) -> None:
        """Add frames and wake all."""
        at = len(self._frames)
        self._frames += [b"id: evt-%d\ndata: %b\n\n" % (n, self._line) for n in range(at, at + facts)]
        news, self._news = self._news, trio.Event()
        news.set()

    @property
    def end(self) -> int:
        """How many there are."""
        return len(self._frames)

    async def serve(self, stream: trio.SocketStream) -> None:
        """Send one reader all that comes from now on."""
        try:
            await stream.receive_some(4096)
            await stream.send_all(_HEAD)
            at = self.end
            while True:
                while at >= self.end:
                    await self._news.wait()
                frames = self._frames[at : at + _BATCH]
                at += len(frames)
                await stream.send_all(b"".join(frames))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
        finally:
            stream.socket.close()


async def _tell(frames: Frames, question: dict[str, Any]) -> dict[str, Any]:
    for _ in range(question.get("times", 1)):
        frames.tell(question["facts"])
        await trio.sleep(question.get("pause", 0.0))
    return {"last": f"evt-{frames.end - 1}"}


async def _main() -> None:
    frames = Frames(b"x" * 640)
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1", backlog=1024)
        nursery.start_soon(partial(trio.serve_listeners, frames.serve, listeners))
        control.say({"port": listeners[0].socket.getsockname()[1]})
        await control.answer_questions({**control.USAGE, "tell": partial(_tell, frames)})
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(_main)
