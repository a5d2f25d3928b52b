"""The cluster that a row of measurements means: its accelerators and how they are joined."""

from __future__ import annotations

import re
from functools import lru_cache

from stoker.errors import BadInput
from stoker.planning.cluster.accelerators import Accelerator, accelerator_named
from stoker.planning.cluster.cluster import Cluster
from stoker.planning.cluster.row_architecture import CannotBeModelled, Row, need, number

_LINKS = re.compile(r"nv-?link|nv-?switch|nvl\d|xgmi|infinity fabric|\bici\b|hccs|sxm", re.IGNORECASE)
_PORTS = re.compile(
    r"\bib\b|infiniband|roce|ethernet|\befa\b|omni|slingshot|\b[hnexf]dr|[a-z]x-?\d|\bnics?\b", re.IGNORECASE
)
_RATES = {"fdr": 56, "edr": 100, "hdr": 200, "ndr": 400, "xdr": 800}
"""10^9 bits a second of a port of InfiniBand."""
_FASTEST = 400.0
"""10^9 bytes a second of one accelerator: above that a figure means something else."""
_PCIE_GBPS = {"3": 16.0, "4": 32.0, "5": 64.0, "6": 128.0}
"""Of 16 lanes, each way."""


def cluster_in(row: Row) -> Cluster:
    """Raises `CannotBeModelled`, with the reason."""
    if not row["gpu"]:
        raise CannotBeModelled("no gpu")
    try:
        return _cluster(
            row["gpu"], need(row, "gpus_total"), number(row, "gpus_per_node"), row.get("interconnect", "")
        )
    except BadInput as error:
        raise CannotBeModelled(str(error)) from None


@lru_cache(maxsize=1024)
def _cluster(gpu: str, gpus: int, per_node: int | None, interconnect: str) -> Cluster:
    accelerator = accelerator_named(gpu)
    per_node = per_node or accelerator.per_node or 8
    given: dict[str, object] = {"accelerator": accelerator, "accelerators_per_node": per_node}
    given["nodes"] = max(1, -(-gpus // per_node))
    network = network_in(interconnect, per_node, accelerator.nic_gbps or 25.0)
    if network:
        given["nic_gbps"] = network
    rack = re.search(r"NVL(\d+)", interconnect)
    if rack and int(rack[1]):
        given["link_domain"] = int(rack[1])
    elif re.search("pcie", interconnect, re.IGNORECASE) and not _LINKS.search(interconnect):
        given["accelerator"] = _over_pcie(accelerator, interconnect)
        given["link_domain"] = per_node
    return Cluster.model_validate(given)


def _over_pcie(accelerator: Accelerator, words: str) -> Accelerator:
    """The same chip without links of its own."""
    generation = re.search(r"pcie ?(?:gen ?)?([3-6])", words, re.IGNORECASE)
    rate = _PCIE_GBPS[generation[1]] if generation else min(64.0, accelerator.host_gbps or 32.0)
    return accelerator.model_copy(update={"link_gbps_per_direction": rate, "link_domain": None, "neighbours": None})


def network_in(text: str, per_node: int, usual: float) -> float | None:
    """10^9 bytes a second of one accelerator, from words such as `8x200Gb` or `1600 Gbps RoCE/node`.

    One figure without more is that of a port, which an accelerator usually has to itself, unless it is above
    `usual`, the accelerator's own: then the node shares it. None where nothing is said of the network.
    """
    plain = text.replace("×", "x").replace(",", "")
    for part in re.split(r"[;+]| and |\band\b", plain):
        if _LINKS.search(part) and not _PORTS.search(part):
            continue
        found = _of_part(part, per_node, usual)
        if found and found <= _FASTEST:
            return found
    return None


def _of_part(part: str, per_node: int, usual: float) -> float | None:
    named = re.search(r"\b(?:(\d+) ?x ?)?([hnexf]dr)[ -]?(\d+)?", part, re.IGNORECASE)
    several = re.search(r"(\d+) ?x ?(?:[A-Za-z][A-Za-z -]*?)?(\d+) ?[Gg](?!B)", part) or re.search(
        r"(\d+) [A-Za-z -]*?(\d+) ?Gb/s links", part
    )
    if several:
        return int(several[1]) * int(several[2]) / 8 / per_node
    if named and named[1]:
        return int(named[1]) * int(named[3] or _RATES[named[2].lower()]) / 8 / per_node
    rate = re.search(r"(\d+(?:\.\d+)?) ?([GT])(B|b|bit|bE|ig)?(?:ps|/s|it/s|E)?\b", part)
    if rate:
        figure = float(rate[1]) * (1000 if rate[2] == "T" else 1) / (1 if rate[3] == "B" else 8)
    elif named:
        figure = int(named[3] or _RATES[named[2].lower()]) / 8
    else:
        return None
    if re.search(r"(?:/|per )(?:node|host|server|instance|vm|machine)", part):
        return figure / per_node
    if re.search(r"(?:/|per )(?:gpu|accelerator|chip|device|rank)", part, re.IGNORECASE):
        return figure
    return figure / per_node if figure > 1.01 * usual else figure
