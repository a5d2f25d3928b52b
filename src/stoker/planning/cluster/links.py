"""How long collectives take on a described cluster."""

from __future__ import annotations

import math
from dataclasses import dataclass

from stoker.planning.cluster.cluster import Cluster
from stoker.planning.cluster.parameters import Parameters


@dataclass(slots=True)
class Links:
    """Bandwidths in bytes a second and latencies in seconds, as collectives reach them."""

    domain: int
    link: float
    network: float
    link_latency: float
    network_latency: float
    per_node: int
    neighbours: int
    """That links are divided among where they join pairs instead of a switch: few ranks then have few of them."""

    @classmethod
    def of(cls, cluster: Cluster, values: Parameters) -> Links:
        """Of one cluster."""
        return cls(
            domain=cluster.link_domain,
            link=(cluster.accelerator.link_gbps_per_direction or 1.0) * 1e9 * values["link_efficiency"],
            network=cluster.nic_gbps * 1e9 * values["network_efficiency"] / cluster.oversubscription,
            link_latency=values["link_latency"],
            network_latency=values["network_latency"],
            per_node=cluster.accelerators_per_node,
            neighbours=cluster.accelerator.neighbours or 1,
        )

    def _among(self, ranks: int) -> float:
        """Bandwidth of one of so many ranks of a domain to the others."""
        return self.link * min(1.0, (ranks - 1) / self.neighbours)

    def within(self, size: int, stride: int) -> int:
        """How many of a group's `size` ranks, `stride` apart, share a link domain."""
        return max(1, min(size, self.domain // stride)) if stride < self.domain else 1

    def ring(self, size: int, stride: int, amount: float) -> float:
        """Seconds of an all-gather or reduce-scatter of `amount` bytes in all over `size` ranks, `stride` apart.

        Inside a link domain a ring moves (size - 1) / size of it over each link. Between domains the ring
        has as many ports as the group has ranks in each domain, and the links go on inside meanwhile.
        """
        if size <= 1:
            return 0.0
        here = self.within(size, stride)
        moved = amount * (size - 1) / size
        if here >= size:
            return moved / self._among(size) + self.link_latency * (1 + math.log2(size) / 3)
        bandwidth = min(self._among(here), here * self.network) if here > 1 else self.network
        domains = size / here
        return (
            moved / bandwidth + self.link_latency + self.network_latency * math.log2(domains) + self.network_latency
        )

    def exchange(self, size: int, stride: int, amount: float, chosen: int = 1) -> float:
        """Seconds of an all-to-all in which each rank sends `amount` bytes, its own part included.

        Rows that are chosen by several ranks of one domain cross the network once.
        """
        if size <= 1:
            return 0.0
        here = self.within(size, stride)
        domains = size / here
        copies = domains * (1 - (1 - 1 / domains) ** chosen) / chosen
        inside = amount * (here - 1) / size / self._among(here) if here > 1 else 0.0
        outside = amount * (size - here) / size / self.network * copies
        return max(inside, outside) + self.link_latency + (self.network_latency if here < size else 0.0)

    def hop(self, stride: int, amount: float) -> float:
        """Seconds to send `amount` bytes to the rank `stride` further."""
        if stride < self.domain:
            return amount / self._among(2) + self.link_latency
        return amount / self.network + self.network_latency
