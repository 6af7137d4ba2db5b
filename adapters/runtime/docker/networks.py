"""One peer's own network: a bridge on which no container reaches another (F30, F31).

Whoever may run an open job would else reach the engines past the peer's door. Boxed jobs have no network.
"""

import json
import logging
import re
from collections.abc import Mapping
from typing import Any, Final

import attrs
import trio

from adapters.runtime.docker.client import DockerClient, Parameters
from adapters.runtime.docker.failures import start_failed
from adapters.runtime.docker.faults import BadAnswer, DockerFault, EngineError, EngineGone
from adapters.runtime.docker.labels import INSTANCE, network_name
from adapters.runtime.port import StartFailed

MAKE_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.1
LEAVE_SECONDS: Final = 1.0
"""How long a peer that stops waits for its network to be gone."""

_ICC: Final = "com.docker.network.bridge.enable_icc"
_MASQUERADE: Final = "com.docker.network.bridge.enable_ip_masquerade"
_MTU: Final = "com.docker.network.driver.mtu"
_LONGEST_MTU: Final = 5
_IN_USE: Final = (403, 409)
_GONE: Final = re.compile(r"(^|: )network \S+ not found")

logger = logging.getLogger("best_peer.runtime")


@attrs.define(eq=False)
class OwnNetwork:
    """The network of one peer on one engine, there while the peer is or one of its containers is on it."""

    client: DockerClient
    instance: str
    _turn: trio.Lock = attrs.field(factory=trio.Lock, init=False, repr=False)

    @property
    def name(self) -> str:
        """What containers name it by."""
        return network_name(self.instance)

    async def ensure(self) -> None:
        """Find it, or make it: an owner may have removed it (`docker network prune`) while nothing was on it.

        Raises:
            StartFailed: it cannot be made, or another network bears its name, which is left alone.
            EngineGone: the engine does not answer.
        """
        async with self._turn:
            try:
                with trio.move_on_after(MAKE_SECONDS):
                    while not await self._is_there():
                        await self._make()
                    return
            except (EngineError, BadAnswer) as fault:
                words = fault.message if isinstance(fault, EngineError) else str(fault)
                logger.warning("the network %s was not made: %s", self.name, words)
                raise start_failed(words) from fault
        raise start_failed(f"its network was not made within {MAKE_SECONDS:.0f} s")

    async def trouble(self) -> str | None:
        """What is wrong with it, None when it is there.

        Raises:
            EngineGone: the engine does not answer.
        """
        try:
            await self.ensure()
        except StartFailed as failed:
            return f"{failed.reason}; {failed.fix}"
        return None

    async def leave(self) -> None:
        """Remove it unless a container is on it; what cannot be removed is left. The caller bounds it."""
        try:
            for row in await self._named():
                if self._is_ours(row):
                    await self._is_removed(row)
        except DockerFault as fault:
            logger.debug("the network %s is left on the container engine: %s", self.name, fault)

    async def _is_there(self) -> bool:
        rows = await self._named()
        for row in rows:
            self._check(row)
        spare = len(rows) - 1
        for row in rows:
            # Two calls that crossed made two, by whose name no container can be started.
            if spare > 0 and await self._is_removed(row):
                spare -= 1
        return spare == 0

    async def _named(self) -> list[Mapping[str, Any]]:
        params: Parameters = {"filters": json.dumps({"name": [self.name]})}
        rows = await self.client.call("GET", "/networks", params=params)
        # The engine's filter takes any name that this one is a part of.
        return [row for row in rows or () if row.get("Name") == self.name]

    def _is_ours(self, row: Mapping[str, Any]) -> bool:
        return (row.get("Labels") or {}).get(INSTANCE) == self.instance

    def _check(self, row: Mapping[str, Any]) -> None:
        if not self._is_ours(row):
            raise StartFailed(
                f"the container engine has a network named {self.name} which is not this peer's",
                fix=f"remove it (docker network rm {self.name}) and send the command again",
            )
        options = row.get("Options") or {}
        if row.get("Driver") != "bridge" or options.get(_ICC) != "false" or row.get("Internal") is True:
            raise StartFailed(
                f"the network {self.name} is not as this peer makes it, so containers may reach each other",
                fix=f"remove it (docker network rm {self.name}), and the peer makes it anew",
            )

    async def _make(self) -> None:
        options = {_ICC: "false", _MASQUERADE: "true"}
        mtu = await self._mtu()
        if mtu is not None:
            options[_MTU] = mtu
        body = {
            "Name": self.name,
            "CheckDuplicate": True,
            "Driver": "bridge",
            # Where containers had such addresses, older engines would not keep them apart by those.
            "EnableIPv6": False,
            "Options": options,
            "Labels": {INSTANCE: self.instance},
        }
        try:
            await self.client.call("POST", "/networks/create", json=body)
        except EngineGone as gone:
            if not gone.may_have_acted:
                raise
        except EngineError as error:
            if error.status != 409:
                raise
            await trio.sleep(LOOK_SECONDS)

    async def _mtu(self) -> str | None:
        """What the owner set for Docker's own bridge, which other networks do not take over by themselves."""
        bridge = await self.client.call("GET", "/networks/bridge", ok=(404,))
        mtu = str(((bridge or {}).get("Options") or {}).get(_MTU) or "0")
        return mtu if mtu.isdecimal() and len(mtu) <= _LONGEST_MTU and int(mtu) else None

    async def _is_removed(self, row: Mapping[str, Any]) -> bool:
        try:
            await self.client.call("DELETE", f"/networks/{row.get('Id')}", ok=(404,), again=True)
        except EngineError as error:
            if error.status not in _IN_USE:
                raise
            return False
        return True


def is_network_gone(error: EngineError) -> bool:
    """Whether an engine refused a container because its network is not there."""
    return error.status == 404 and _GONE.search(error.message) is not None
