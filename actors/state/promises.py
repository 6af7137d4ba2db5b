"""What is promised on each device, and what each holder holds: sums over what lives (F12, F18)."""

import attrs

from actors.state.workloads import Deployment, Workload


@attrs.define
class Holding:
    """What one holder holds now: device memory in bytes, and its workloads by id."""

    memory_bytes: int = 0
    deployments: set[str] = attrs.field(factory=set)
    jobs: set[str] = attrs.field(factory=set)


@attrs.define
class Promises:
    """Both sums, kept as workloads come and go: each change costs the same however many live.

    A workload is promised its memory from its acceptance, started or not, to its end.
    """

    by_device: dict[str, int] = attrs.field(factory=dict)
    """Bytes by device UUID; a device with none promised is not there."""
    given_back: int = 0
    """How many promises were taken back since the start."""
    _holdings: dict[str, Holding] = attrs.field(factory=dict)

    def holding(self, holder: str) -> Holding:
        """What a holder holds; an empty one for a stranger."""
        return self._holdings.get(holder) or Holding()

    def take(self, workload: Workload) -> None:
        """Promise a workload its memory; each once."""
        holding = self._holdings.setdefault(workload.holder, Holding())
        _ids(holding, workload).add(workload.id)
        self._add(workload, holding, workload.memory_bytes or 0)

    def give_back(self, workload: Workload) -> None:
        """Take the promise back; each once, as it was taken."""
        self.given_back += 1
        holding = self._holdings[workload.holder]
        _ids(holding, workload).remove(workload.id)
        self._add(workload, holding, -(workload.memory_bytes or 0))
        if not holding.deployments and not holding.jobs:
            del self._holdings[workload.holder]

    def _add(self, workload: Workload, holding: Holding, memory_bytes: int) -> None:
        device = workload.device_uuid
        if device is None or not memory_bytes:
            return
        holding.memory_bytes += memory_bytes
        left = self.by_device.get(device, 0) + memory_bytes
        if left:
            self.by_device[device] = left
        else:
            self.by_device.pop(device, None)


def _ids(holding: Holding, workload: Workload) -> set[str]:
    return holding.deployments if isinstance(workload, Deployment) else holding.jobs
