"""The tree over batches' flags: best bound first, one batch decided after the other; see `csp.waves`."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from csp.horizon import flags_ticks, work_ticks
from csp.relaxations import least_batches
from csp.search.space import Space

if TYPE_CHECKING:
    from csp.waves._kernels import Costs

MOST_BYTES = 2**30
"""Memory for open nodes; beyond it the tree stops with what it has proven."""
MOST_WORK = 3_000_000
"""States times batches of one evaluation, up to which the tree is any use."""
_ROOT_STEPS, _ROOT_STEP = 400, 1.0
_STEPS, _STEP = 12, 0.12
_LEAF_STEPS, _LEAF_STEP = 150, 0.3
"""Steps of prices and first step lengths; tuned on het16-00, valid with any."""

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Node:
    """Batches decided so far and prices.

    Parameters
    ----------
    decided
        How many batches from the first on have a kind.
    kind
        Per batch (`csp.waves._kernels`).
    window
        Per type, first and last batch in which it may be filled first.
    price, share
        Ticks per block and batch; shares of the prefill flag, per batch and type and, last, per block.
    """

    decided: int
    kind: npt.NDArray[np.int8]
    window: npt.NDArray[np.int16]
    price: npt.NDArray[np.int64]
    share: Floats


class Tree:
    """A search that keeps the least bound of what is open.

    Parameters
    ----------
    upper
        Asked for the cost of the best schedule known; nothing that is no better is looked into.

    Attributes
    ----------
    lower_bound_ticks
        Proven for every schedule with whole fills, as long as it is below `upper`.
    """

    def __init__(self, space: Space, upper: Callable[[], int | None]) -> None:
        self.space, self.upper = space, upper
        self.costs = costs_of(space)
        self.lower_bound_ticks = 0
        self.expanded = 0
        self.latest: Node | None = None
        """The node of least bound looked at last."""
        self._heap: list[tuple[int, int, Node | int]] = []
        self._count = self._bytes = 0
        self._stuck: int | None = None
        self._first = max(least_batches(space.instance).best, int(space.tables.outputs.max()), 1)
        self._push(self._simple(self._first), self._first)

    def _simple(self, batches: int) -> int:
        """What so many batches cost at least."""
        return work_ticks(self.space.instance, self.space.floor) + flags_ticks(self.space.floor, batches)

    def _push(self, bound: int, node: Node | int) -> None:
        self._count += 1
        if isinstance(node, Node):
            self._bytes += node.kind.nbytes + node.price.nbytes + node.share.nbytes + 400
        heapq.heappush(self._heap, (bound, self._count, node))

    @property
    def done(self) -> bool:
        """Whether the bound cannot rise any more."""
        return not self._heap or self._bytes > MOST_BYTES or (
            self._stuck is not None and self._stuck <= self.lower_bound_ticks
        )  # fmt: skip

    def step(self) -> None:
        """Look into the open node of least bound."""
        upper = self._limit()
        bound, _, node = heapq.heappop(self._heap)
        self._bytes -= 0 if isinstance(node, int) else node.kind.nbytes + node.price.nbytes + node.share.nbytes + 400
        found = bound if self._stuck is None else min(bound, self._stuck)
        self.lower_bound_ticks = max(self.lower_bound_ticks, min(found, upper))
        if bound >= upper:
            self._heap.clear()
        elif isinstance(node, int):
            self._root(node, upper)
        elif node.decided == len(node.kind):
            self._leaf(node, bound, upper)
        else:
            self.expanded += 1
            self.latest = node
            self._branch(node, bound, upper)
        if not self._heap:
            self.lower_bound_ticks = max(self.lower_bound_ticks, upper if self._stuck is None else self._stuck)

    def _limit(self) -> int:
        from csp.waves._kernels import NEVER

        upper = self.upper()
        return NEVER // 4 if upper is None else upper

    def _root(self, batches: int, upper: int) -> None:
        """Start with so many batches, and put off one more."""
        self._push(self._simple(batches + 1), batches + 1)
        node = self.root(batches)
        self._improve(node, self._simple(batches), upper, _ROOT_STEPS, _ROOT_STEP)

    def root(self, batches: int) -> Node:
        """So many batches, of which the first only prefills: nobody is resident before it."""
        from csp.waves._kernels import PREFILLS

        kind = np.zeros(batches, np.int8)
        kind[0] = PREFILLS
        floor, costs = self.space.floor, self.costs
        price = np.full(batches, (floor.batch + floor.decode_batch) // costs.capacity, np.int64)
        share = np.full((batches, len(costs.outputs) + 1), 0.03 / len(costs.outputs), np.float32)
        share[:, -1] = 0.969
        window = np.tile(np.array([0, batches - 1], np.int16), (len(costs.outputs), 1))
        return Node(1, kind, window, price, share)

    def _improve(self, node: Node, bound: int, upper: int, steps: int, step: float) -> int:
        """Better prices, and back into the heap unless that rules the node out; the bound."""
        better = max(bound, self.ascend(node, upper, steps, step))
        if better < upper:
            self._push(better, node)
        return better

    def ascend(
        self, node: Node, upper: int, steps: int, step: float, firsts: npt.NDArray[np.int64] | None = None
    ) -> int:
        """Improve a node's prices in place; its bound. ``firsts`` counts where types are filled first."""
        from csp.waves._kernels import ascend

        share = node.share.astype(np.float64)
        # Rounding to 32 bits must not let shares add up to more than 1.
        share *= np.minimum(1.0, (1 - 1e-9) / share.sum(axis=1))[:, None]
        firsts = np.zeros((len(node.window), len(node.kind)), np.int64) if firsts is None else firsts
        bound = ascend(self.costs, node.kind, node.window, node.price, share, upper, steps, step, firsts)
        node.share[:] = share
        return int(bound)

    def _branch(self, node: Node, bound: int, upper: int) -> None:
        from csp.waves._kernels import BOTH, DECODES, PREFILLS

        for kind in (DECODES, PREFILLS, BOTH) if self.costs.hybrid else (DECODES, PREFILLS):
            kinds = node.kind.copy()
            kinds[node.decided] = kind
            child = Node(node.decided + 1, kinds, node.window, node.price.copy(), node.share.copy())
            self._improve(child, bound, upper, _STEPS, _STEP)

    def _leaf(self, node: Node, bound: int, upper: int) -> None:
        """All flags are decided: split where a request is filled first, if its ways disagree; else the bound stays."""
        firsts = np.zeros((len(node.window), len(node.kind)), np.int64)
        better = max(bound, self.ascend(node, upper, _LEAF_STEPS, _LEAF_STEP, firsts))
        if better >= upper:
            return
        firsts[self.costs.counts > 1] = 0  # copies may differ
        torn = firsts.sum(axis=1) - firsts.max(axis=1)
        i = int(torn.argmax())
        if torn[i] == 0:
            # All agree on ways that do not fit together: exclude one's batch, of whoever has most batches left.
            width = (node.window[:, 1] - node.window[:, 0]) * (self.costs.counts == 1)
            i = int(width.argmax())
            if width[i] == 0:
                self._stuck = better if self._stuck is None else min(better, self._stuck)
                return
        middle = int(np.searchsorted(firsts[i].cumsum(), firsts[i].sum() / 2))
        middle = min(max(middle, int(node.window[i, 0])), int(node.window[i, 1]) - 1)
        for part in ((node.window[i, 0], middle), (middle + 1, node.window[i, 1])):
            window = node.window.copy()
            window[i] = part
            self._push(better, Node(node.decided, node.kind, window, node.price.copy(), node.share.copy()))


def costs_of(space: Space) -> Costs:
    """What requests cost by type; types in the order of the space."""
    from csp.waves._kernels import Costs

    a, instance = space.floor, space.instance
    requests = [instance.requests[i] for i in space.order]
    types = list(dict.fromkeys((r.input_tokens, r.output_tokens) for r in requests))
    counts = [sum((r.input_tokens, r.output_tokens) == one for r in requests) for one in types]
    k = np.arange(max(o for _, o in types) + 1)
    size = np.array([i for i, _ in types], np.int64)[:, None] + k[None, :]
    fill = a.prefill_square * size * size + a.tokens * size + a.n_prefill
    decode = a.decode_reads * (size - 1) + a.tokens + a.n_decode
    limits: Any = space.tables.limits
    from csp.search.space import HYBRID, PREEMPTION

    return Costs(
        np.array([o for _, o in types], np.int64), np.array(counts, np.int64), fill, decode,
        -(-size // instance.block_size), -(-(size - 1) // instance.block_size), instance.kv_blocks, a.batch,
        a.prefill_batch, a.decode_batch, bool(limits[PREEMPTION]), bool(limits[HYBRID]),
    )  # fmt: skip


def applies(space: Space) -> bool:
    """Whether one evaluation is cheap enough, and sums of ticks fit."""
    outputs = space.tables.outputs
    types = {(r.input_tokens, r.output_tokens) for r in space.instance.requests}
    batches = max(least_batches(space.instance).best, int(outputs.max()))
    states = sum(o for _, o in types)
    return states * batches <= MOST_WORK and space.floor.batch + space.floor.decode_batch > 0
