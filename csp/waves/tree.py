"""The tree over batches' flags: best bound first, one batch decided after the other; see `csp.waves`."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from csp.horizon import work_ticks
from csp.relaxations import least_batches
from csp.relaxations.batches import least_prefill_batches
from csp.relaxations.load import load_of
from csp.search.space import Space
from csp.waves.costs import costs_of
from csp.waves.sweep import sweep_node
from sim.schedule import Schedule

MOST_BYTES = 2**30
"""Memory for open nodes; beyond it the tree stops with what it has proven."""
MOST_WORK = 3_000_000
"""States times batches of one evaluation, up to which the tree is any use."""
_ROOT = 3_000, 1.0, 0.01
_CHILD = 50, 0.3, 0.1
_LEAF = 100, 0.5, 0.1
"""Steps of prices, first and last rate: at roots, at children, at nodes with all batches decided, when first looked
into and when split. Tuned on het16-00, -02, -04 and -06, valid with any."""
_STRIDE = 3
"""Where one more batch only decodes, prices are improved every so many batches: little changes."""
_WIDTH = 1_000
"""Most states per batch of a sweep."""
_ALL, _PER_BLOCK = 0.03, 0.969
"""Shares to begin with: of all requests, of all blocks."""

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
    price, toll, share
        Ticks per block and batch; ticks of an open batch that prefills; its shares, per batch and type and, last, per
        block.
    left
        How many of the open batches prefill.
    effort
        What was done about its bound once all batches were decided: 1 better prices, 2 a sweep too.
    """

    decided: int
    kind: npt.NDArray[np.int8]
    window: npt.NDArray[np.int16]
    price: npt.NDArray[np.int64]
    toll: npt.NDArray[np.int64]
    share: Floats
    left: int
    effort: int = 0

    def child(self, decided: int, left: int) -> Node:
        """One with arrays of its own, and no efforts made yet."""
        return Node(decided, self.kind.copy(), self.window.copy(), self.price.copy(), self.toll.copy(),
                    self.share.copy(), left)  # fmt: skip

    @property
    def nbytes(self) -> int:
        """Memory it takes, about."""
        return self.kind.nbytes + self.window.nbytes + self.price.nbytes + self.share.nbytes + 500


class Tree:
    """A search that keeps the least bound of what is open.

    Parameters
    ----------
    upper
        Asked for the cost of the best schedule known; nothing that is no better is looked into.
    offer
        Given schedules that are found on the way; they may break the token budget or the number of slots.

    Attributes
    ----------
    lower_bound_ticks
        Proven for every schedule with whole fills, as long as it is below `upper`.
    """

    def __init__(
        self, space: Space, upper: Callable[[], int | None], offer: Callable[[Schedule], None] = lambda _: None
    ) -> None:
        self.space, self.upper = space, upper
        self.costs = costs_of(space)
        self.lower_bound_ticks = 0
        self.offer = offer
        self._heap: list[tuple[int, int, Node | tuple[int, int]]] = []
        self._busy: dict[int, int] = {}
        """Bounds of nodes being looked into."""
        self._lock = threading.Lock()
        self._count = self._bytes = 0
        types = len(self.costs.outputs)
        self._even = np.array([_ALL / types] * types + [_PER_BLOCK], np.float32)
        self._stuck: int | None = None
        load = load_of(space.instance)
        self._batches = max(least_batches(space.instance).best, int(space.tables.outputs.max()), 1)
        self._fills = least_prefill_batches(load)
        self._open(self._batches, self._fills)

    def _open(self, batches: int, fills: int) -> None:
        """Put off schedules of so many batches, of which so many prefill."""
        if fills <= batches:
            self._push(self._simple(batches, fills), (batches, fills))

    def _simple(self, batches: int, fills: int) -> int:
        """What they cost at least."""
        a = self.space.floor
        lesser = min(a.prefill_batch, a.decode_batch)
        flags = batches * (a.batch + lesser) + fills * (a.prefill_batch - lesser)
        return work_ticks(self.space.instance, a) + flags

    def _push(self, bound: int, node: Node | tuple[int, int]) -> None:
        with self._lock:
            self._count += 1
            self._bytes += node.nbytes if isinstance(node, Node) else 0
            heapq.heappush(self._heap, (bound, self._count, node))

    @property
    def done(self) -> bool:
        """Whether the bound cannot rise any more."""
        with self._lock:
            stuck = self._stuck is not None and self._stuck <= self.lower_bound_ticks
            return stuck or self._bytes > MOST_BYTES or not (self._heap or self._busy)

    def step(self) -> None:
        """Look into the open node of least bound; threads may do so side by side."""
        upper = self._limit()
        with self._lock:
            if not self._heap:
                return
            bound, number, node = heapq.heappop(self._heap)
            self._bytes -= node.nbytes if isinstance(node, Node) else 0
            self._busy[number] = bound
            self._settle(upper)
        if bound < upper:
            self._look_into(node, bound, upper)
        with self._lock:
            del self._busy[number]
            self._settle(upper)

    def _settle(self, upper: int) -> None:
        """Raise the bound to the least of what is open, being looked into, or stuck."""
        parts = [*self._busy.values(), *(entry[0] for entry in self._heap[:1])]
        parts += [] if self._stuck is None else [self._stuck]
        self.lower_bound_ticks = max(self.lower_bound_ticks, min([upper, *parts]))

    def _look_into(self, node: Node | tuple[int, int], bound: int, upper: int) -> None:
        if not isinstance(node, Node):
            self._root(*node, upper)
        elif node.decided == len(node.kind):
            self._effort(node, bound, upper)
        else:
            self._branch(node, bound, upper)

    def _limit(self) -> int:
        from csp.waves._kernels import NEVER

        upper = self.upper()
        return NEVER // 4 if upper is None else upper

    def _root(self, batches: int, fills: int, upper: int) -> None:
        """Start with so many batches, and put off one more, and one more that prefills."""
        self._open(batches, fills + 1)
        if fills == self._fills:
            self._open(batches + 1, fills)
        self._improve(self.root(batches, fills), self._simple(batches, fills), upper, *_ROOT)

    def root(self, batches: int, fills: int) -> Node:
        """So many batches, of which the first only prefills: nobody is resident before it."""
        from csp.waves._kernels import PREFILLS, rest_ticks

        kind = np.zeros(batches, np.int8)
        kind[0] = PREFILLS
        floor, costs = self.space.floor, self.costs
        price = np.full(batches, (floor.batch + floor.decode_batch) // costs.capacity, np.int64)
        share = np.tile(self._even, (batches, 1))
        window = np.tile(np.array([0, batches - 1], np.int16), (len(costs.outputs), 1))
        return decided(Node(1, kind, window, price, np.array([rest_ticks(costs)]), share, fills - 1))

    def _improve(self, node: Node, bound: int, upper: int, steps: int, first: float, last: float) -> None:
        """Better prices, and into the heap unless they rule the node out."""
        better = max(bound, self.ascend(node, upper, steps, first, last))
        if better < upper:
            self._push(better, node)

    def ascend(
        self, node: Node, upper: int, steps: int, first: float, last: float, firsts: npt.NDArray[np.int64] | None = None
    ) -> int:
        """Improve a node's prices in place; its bound. ``firsts`` counts where types are filled first."""
        from csp.waves._kernels import ascend

        share = _normal(node.share)
        firsts = np.zeros((len(node.window), len(node.kind)), np.int64) if firsts is None else firsts
        bound = ascend(self.costs, node.kind, node.left, node.window, node.price, node.toll, share, upper, steps, first,
                       last, firsts)  # fmt: skip
        node.share[:] = share
        return int(bound)

    def _effort(self, node: Node, bound: int, upper: int) -> None:
        """All batches are decided: better prices and then a sweep, the node being put back; after both, split."""
        if node.effort == 0:
            better = max(bound, self.ascend(node, upper, *_LEAF))
        elif node.effort == 1:
            better = self.sweep(node, bound, upper, _WIDTH)
        else:
            self._split(node, bound, upper)
            return
        if better < upper:
            self._push(better, replace(node, effort=node.effort + 1))

    def sweep(self, node: Node, bound: int, upper: int, most: int) -> int:
        """The bound by a sweep (`csp.waves.sweep`); a schedule it finds is offered."""
        base, share = self.ascend(node, upper, 1, 1.0, 1.0), _normal(node.share)
        swept = sweep_node(self.space, self.costs, node.kind, node.window, node.price, int(node.toll[0]), share, base,
                           bound, upper, most)  # fmt: skip
        if swept.schedule is not None:
            self.offer(swept.schedule)
        return swept.bound

    def _branch(self, node: Node, bound: int, upper: int) -> None:
        from csp.waves._kernels import DECODES, EITHER, PREFILLS

        for kind in (DECODES, EITHER if self.costs.hybrid else PREFILLS):
            left = node.left - (kind != DECODES)
            if not 0 <= left < len(node.kind) - node.decided:
                continue
            child = node.child(node.decided + 1, left)
            child.kind[node.decided] = kind
            child.share[node.decided] = self._even
            if kind == DECODES and left and child.decided % _STRIDE:
                self._push(bound, child)
            else:
                self._improve(decided(child), bound, upper, *_CHILD)

    def _split(self, node: Node, bound: int, upper: int) -> None:
        """Split by whether a batch decodes, then by where a request is filled first, if its ways disagree."""
        from csp.waves._kernels import BOTH, EITHER, PREFILLS

        either = np.flatnonzero(node.kind == EITHER)
        if len(either):
            for kind in (PREFILLS, BOTH):
                child = node.child(node.decided, node.left)
                child.kind[either[0]] = kind
                self._improve(child, bound, upper, *_CHILD)
            return
        firsts = np.zeros((len(node.window), len(node.kind)), np.int64)
        better = max(bound, self.ascend(node, upper, *_LEAF, firsts))
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
                with self._lock:
                    self._stuck = better if self._stuck is None else min(better, self._stuck)
                return
        middle = int(np.searchsorted(firsts[i].cumsum(), firsts[i].sum() / 2))
        middle = min(max(middle, int(node.window[i, 0])), int(node.window[i, 1]) - 1)
        for part in ((node.window[i, 0], middle), (middle + 1, node.window[i, 1])):
            child = node.child(node.decided, node.left)
            child.window[i] = part
            self._push(better, child)


def _normal(share: Floats) -> npt.NDArray[np.float64]:
    """Shares whose sums rounding to 32 bits has not brought above 1."""
    exact = share.astype(np.float64)
    scaled: npt.NDArray[np.float64] = exact * np.minimum(1.0, (1 - 1e-9) / exact.sum(axis=1))[:, None]
    return scaled


def decided(node: Node) -> Node:
    """Decide the rest where no further batch prefills."""
    from csp.waves._kernels import DECODES

    if node.left:
        return node
    node.kind[node.decided :] = DECODES
    return replace(node, decided=len(node.kind))


def applies(space: Space) -> bool:
    """Whether one evaluation is cheap enough, and sums of ticks fit."""
    outputs = space.tables.outputs
    types = {(r.input_tokens, r.output_tokens) for r in space.instance.requests}
    batches = max(least_batches(space.instance).best, int(outputs.max()))
    states = sum(o for _, o in types)
    return states * batches <= MOST_WORK and space.floor.batch + space.floor.decode_batch > 0
