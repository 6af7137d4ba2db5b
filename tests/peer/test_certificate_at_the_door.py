"""The door's certificate gives way to another while clients are connected, and the owner asks (F34)."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import httpx
import pytest
import trio

from adapters.clock.fake import FakeClock
from peer.certificates import OwnCertificate, keeper_spec
from peer.cli.door import Door
from tests.support.peers import open_door

if TYPE_CHECKING:
    from pathlib import Path

HANG = 20.0
"""A bound on a hang, no measure of speed."""
DAY = timedelta(days=1)


def own(folder: Path) -> OwnCertificate:
    return OwnCertificate(folder / "tls", "127.0.0.1", ())


async def test_streams_live_on_and_new_clients_and_the_owner_meet_the_new_one(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    async with open_door(tmp_path, https=True) as door:
        # Made 370 days ago, as the door finds it at a look after a long time.
        source = own(tmp_path / "long")
        old = source.load(now - 370 * DAY)
        door.front.show(old)
        door.front.record(old)
        trusting_old = ssl.create_default_context(cadata=old.pem)
        door.tls = trusting_old
        agent = await door.sign_in()
        before = await trio.to_thread.run_sync(Door.find, door.peer.folder.path)
        async with agent.stream() as stream:
            door.peer.house.workers.spawn(
                keeper_spec(source, door.front, FakeClock(int(now.timestamp() * 1000)))
            )
            with trio.fail_after(HANG):
                while door.front.shown is old:  # noqa: ASYNC110 - a thread makes no event of it
                    await trio.sleep(0.001)
            new = door.front.shown
            assert new is not None
            door.tls = ssl.create_default_context(cafile=new.certificate)
            fresh = door.agent(agent.key)
            assert (await fresh.get("/commands")).status_code == 200
            await door.deploy(fresh)
            assert (await stream.until("DeploymentReady"))[-1]
            # Found before the change and asked after it: the owner's command looks once more.
            assert (await before.get("/admin/status"))["streams"] >= 1
            door.tls = trusting_old
            with pytest.raises(httpx.ConnectError):
                await door.agent(agent.key).get("/commands")


async def test_a_door_that_starts_again_shows_the_latest(tmp_path: Path) -> None:
    async with open_door(tmp_path, https=True) as door:
        new = own(tmp_path / "other").load(datetime.now(UTC))
        front = door.front
        front.show(new)
        server = front._server
        assert server is not None
        server.stop()  # nobody asked for it, so its supervisor starts it again
        door.tls = ssl.create_default_context(cafile=new.certificate)
        with trio.fail_after(HANG):
            while front._server is server:  # noqa: ASYNC110 - its supervisor waits before it starts it
                await trio.sleep(0.001)
        assert (await door.client().get("/.well-known/best")).status_code == 200
