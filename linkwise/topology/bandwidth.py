"""A(S): the modelled all-reduce bandwidth of a set of GPUs [GB/s].

The model is NCCL's own (NVIDIA/nccl v2.30, `src/graph/{topo.h,search.cc,tuning.cc}`), in closed
form. With b one NVLink [GB/s], c the NVLinks inside S and k = |S| ≥ 2:

    pair(S)   = b · c                          k = 2
    ring(S)   = b · C(S) · k/(k−1)             C: fractional packing of Hamiltonian cycles
    chain(S)  = 0.92 · b · H(S)                H: fractional packing of Hamiltonian paths
    switch(S) = b · c · k/(2(k−1))             all of S on one NVSwitch; c: links of one GPU
    host(S)   = w(S) · k/(2(k−1))              w: the worst PCIe level needed to connect S

A(S) is the largest that applies; host(S) applies only where NVLink alone does not connect S.
"""

import numpy as np
from numpy.typing import NDArray

from linkwise.topology.machine import Level, Machine, gpus_of
from linkwise.topology.packing import pack_chains, pack_rings
from linkwise.topology.subsets import Floats, Ints, pair_sums, popcounts, subset_minima, subset_sums

CHAIN_EFFICIENCY = 0.92
"""NCCL's factor for trees. Source: `tuning.cc`, v2.30."""
EXACT_COMPONENT = 8
"""Up to this many GPUs joined by NVLink, packings are solved exactly for every set of them."""
EXACT_SET = 4
"""In larger components, sets of at most this size are exact, larger ones get the bound."""


def bandwidths(machine: Machine) -> tuple[Floats, bool]:
    """Return A for every set of a machine's GPUs, and whether each value is exact.

    In a direct mesh that joins more than `EXACT_COMPONENT` GPUs, sets above `EXACT_SET` get an
    upper bound instead: a cycle takes a link of k pairs and two at every GPU, a path of k−1 pairs
    and one at every GPU, so C ≤ min(Σc/k, min degree/2) and H ≤ min(Σc/(k−1), min degree).

    Returns:
        A [GB/s] by mask, shape (2ⁿ,), 0 for sets of fewer than two GPUs and for sets that NVLink
        connects but no ring or chain covers; and False where some value is a bound.

    Cost: 0.3 s for a DGX-1 on first sight, milliseconds for machines on PCIe or an NVSwitch.
    """
    size = popcounts(machine.n)
    linked = nvlink_connected(machine)
    several = size >= 2
    a = np.where(several & ~linked, _host(machine), 0.0)
    nvlink = np.flatnonzero(several & linked)
    if machine.switched:
        per_gpu = np.array([max(row) for row in machine.links])
        fewest = subset_minima(per_gpu)
        k = size[nvlink]
        a[nvlink] = machine.constants.nvlink * fewest[nvlink] * k / (2 * (k - 1))
        return a, True
    exact = True
    for component in _components(machine):
        small = component.bit_count() <= EXACT_COMPONENT
        exact &= small
        inside = nvlink[(nvlink & ~component) == 0]
        solved = inside if small else inside[size[inside] <= EXACT_SET]
        for mask in solved:
            a[mask] = _mesh(machine, gpus_of(int(mask)))
        if not small:
            rest = inside[size[inside] > EXACT_SET]
            a[rest] = _mesh_bound(machine, size)[rest]
    return a, exact


def uplinks(machine: Machine) -> tuple[tuple[int, int], ...]:
    """Return the mask of the GPUs below each PCIe switch, and how many of them can leave at once.

    GPUs below a switch share its uplink, or the NICs that are below it, too. A GPU at no known
    switch has a link of its own.
    """
    found: list[tuple[int, int]] = []
    left = (1 << machine.n) - 1
    while left:
        mask, reached = 0, left & -left
        while mask != reached:
            mask = reached
            for i in gpus_of(mask):
                near = (j for j in range(machine.n) if machine.levels[i][j] >= Level.PXB)
                reached |= sum(1 << j for j in near)
        nics = sum(any(nic.levels[i] >= Level.PXB for i in gpus_of(mask)) for nic in machine.nics)
        found.append((mask, max(nics, 1)))
        left &= ~mask
    return tuple(found)


def nvlink_connected(machine: Machine) -> NDArray[np.bool_]:
    """Return for every set whether NVLink alone connects it, shape (2ⁿ,); a single GPU is."""
    return _connected([[c > 0 for c in row] for row in machine.links])


def _connected(edge: list[list[bool]]) -> NDArray[np.bool_]:
    """Return for every set whether the given edges connect it, shape (2ⁿ,).

    A connected set always has a GPU whose removal leaves it connected, so sets follow from smaller
    ones; masks are visited by size.
    """
    n = len(edge)
    neighbours = [sum(1 << j for j in range(n) if edge[i][j] and i != j) for i in range(n)]
    masks = np.arange(1 << n)
    size = popcounts(n)
    connected: NDArray[np.bool_] = size == 1
    for k in range(2, n + 1):
        of_size = masks[size == k]
        for i in range(n):
            having = of_size[(of_size >> i & 1) == 1]
            rest = having ^ (1 << i)
            connected[having] |= connected[rest] & ((rest & neighbours[i]) != 0)
    return connected


def _host(machine: Machine) -> Floats:
    """Return host(S) of every set, also where NVLink alone connects it, shape (2ⁿ,)."""
    n = machine.n
    speed = [[machine.pcie_speed(level) for level in row] for row in machine.levels]
    worst = np.zeros(1 << n)
    for limit in sorted({s for row in speed for s in row}):
        edge = [
            [machine.links[i][j] > 0 or speed[i][j] >= limit for j in range(n)] for i in range(n)
        ]
        worst[_connected(edge)] = limit
    k = np.maximum(popcounts(n), 2)
    host: Floats = worst * k / (2 * (k - 1))
    return host


def _components(machine: Machine) -> list[int]:
    """Return the masks of the GPUs that NVLinks join, largest sets, each of two GPUs or more."""
    components: list[int] = []
    left = machine.fabric
    while left:
        grown, reached = 0, left & -left
        while grown != reached:
            grown = reached
            for i in gpus_of(grown):
                reached |= sum(1 << j for j, c in enumerate(machine.links[i]) if c)
        components.append(reached)
        left &= ~reached
    return components


def _mesh(machine: Machine, gpus: tuple[int, ...]) -> float:
    """Return A of a set that direct NVLinks connect [GB/s]."""
    b = machine.constants.nvlink
    links = tuple(tuple(machine.links[i][j] for j in gpus) for i in gpus)
    k = len(gpus)
    if k == 2:
        return b * links[0][1]
    return max(b * pack_rings(links) * k / (k - 1), CHAIN_EFFICIENCY * b * pack_chains(links))


def _mesh_bound(machine: Machine, size: Ints) -> Floats:
    """Return the upper bound on A of direct meshes for every set, shape (2ⁿ,)."""
    links = np.array(machine.links)
    total = pair_sums(links)
    degree = np.full(1 << machine.n, np.inf)
    masks = np.arange(1 << machine.n)
    for i in range(machine.n):
        having = (masks >> i & 1) == 1
        degree[having] = np.minimum(degree[having], subset_sums(links[i])[having])
    k = np.maximum(size, 2)
    ring = np.minimum(total / k, degree / 2) * k / (k - 1)
    chain = CHAIN_EFFICIENCY * np.minimum(total / (k - 1), degree)
    bound: Floats = machine.constants.nvlink * np.maximum(ring, chain)
    return bound
