"""Least maximum time to first token of the urgent class, then least overhead: exactly.

For small online instances with whole fills (chunking forbidden): what could a scheduler do that knows the future? Label
setting over states. A state says per request how many tokens it has generated and where its KVs are: nowhere, on the
GPU, in host memory. A label adds the time, the worst urgent TTFT so far and the overhead so far (transfers, and what
refills add to their batches). A label that is no better than another of its state in anything is dropped. To start as
early as a batch's requests allow loses nothing; to idle for a request still to come is the choice to process it next.

Left out without loss: moving KVs to the host where all peaks fit together; dropping KVs that still fit, where decoding
later costs no more than refilling (`_refills_are_dearer`), because to keep them until room is needed costs nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, product
from typing import NamedTuple

from sim.clock import TICKS_PER_NS
from sim.cost.model import CostModel, Features, load_cost_model
from sim.errors import InputError
from sim.instance import Instance
from sim.replay import Replay, Rules, replay
from sim.schedule import Batch, Schedule

ABSENT, RESIDENT, HOST = range(3)
Place = tuple[int, int]
"""(tokens generated, where the KVs are) of one request."""
Places = tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class UrgentOptimum:
    """Lexicographic optimum, proven, with a schedule that attains it.

    Parameters
    ----------
    max_ttft_ticks
        Least possible maximum TTFT of the class.
    overhead_ticks
        Least overhead of schedules that attain it; None where a refill may cost less than the decode step it replaces:
        overhead may then shrink along a schedule, and settling labels in its order proves nothing.
    replay
        One of those.
    labels
        How many labels were settled: the work it took.
    """

    max_ttft_ticks: int
    overhead_ticks: int | None
    replay: Replay
    labels: int


class _Label(NamedTuple):
    places: Places
    now: int
    worst: int
    overhead: int
    batch: Batch | None
    parent: _Label | None


class _Move(NamedTuple):
    batch: Batch
    places: Places
    latest_arrival: int
    duration: int
    overhead: int
    first_tokens: tuple[int, ...]


def least_urgent_ttft(
    instance: Instance,
    *,
    rules: Rules,
    cost: CostModel | None = None,
    priority: int = 0,
    makespan_limit_ticks: int | None = None,
    most_labels: int = 2_000_000,
) -> UrgentOptimum | None:
    """Minimise the maximum TTFT of a class, then the overhead.

    Parameters
    ----------
    rules
        Chunking must be forbidden; ``swap``, if allowed, must not overlap with batches.
    priority
        The class.
    makespan_limit_ticks
        Only schedules that end by then.
    most_labels
        Give up beyond.

    Returns
    -------
    The optimum; None if no schedule ends in time, or the search gave up.

    Raises
    ------
    InputError
        If the search does not cover the instance or the rules.
    """
    if not any(r.priority == priority for r in instance.requests):
        raise InputError("no request of this class", field="priority", value=priority)
    search = _Search(instance, cost or load_cost_model(instance.cost_model), rules, priority, makespan_limit_ticks)
    spent, found = 0, None
    for by_overhead in (False, True) if search.lazy else (False,):
        found, labels = search.settle(by_overhead, most_labels - spent)
        spent += labels
        if found is None:
            return None
        search.most_worst = found.worst
    assert found is not None
    batches = []
    label: _Label | None = found
    while label is not None and label.batch is not None:
        batches.append(label.batch)
        label = label.parent
    checked = replay(instance, Schedule(tuple(reversed(batches))), rules=rules, cost=search.cost)
    if checked.makespan_ticks != found.now:
        raise RuntimeError(f"the replay ends at {checked.makespan_ticks}, the search at {found.now}")
    return UrgentOptimum(found.worst, found.overhead if search.lazy else None, checked, spent)


class _Search:
    def __init__(self, instance: Instance, cost: CostModel, rules: Rules, priority: int, limit: int | None) -> None:
        self.instance, self.cost, self.rules, self.limit = instance, cost, rules, limit
        self.requests = instance.requests
        self.arrival = [r.arrival_ns * TICKS_PER_NS for r in self.requests]
        self.urgent = [r.priority == priority for r in self.requests]
        self.own_prefill = [self._fill_ticks(r.input_tokens) for r in self.requests]
        self.slots = instance.max_num_seqs or len(self.requests)
        self.roomy = sum(r.peak_kv_tokens for r in self.requests) <= instance.kv_capacity_tokens
        self.lazy = not rules.preemption or self._refills_are_dearer()
        self.no_refills = self.roomy and self.lazy
        self.most_worst: int | None = None
        self.moves_of: dict[Places, list[_Move]] = {}
        self.rest_of: dict[Places, int] = {}
        self._check()

    def _check(self) -> None:
        self.instance.require_feasible()
        if self.rules.chunking or not self.rules.hybrid or self.rules.allow_empty:
            raise InputError("the search is for whole fills in batches of any kind, none of them empty", field="rules")
        if self.rules.swap is not None and self.rules.swap.overlap:
            raise InputError("transfers must not overlap with batches here", field="rules")
        if self.instance.block_size != 1:
            raise InputError("must be 1 here", field="block_size", value=self.instance.block_size)

    def _refills_are_dearer(self) -> bool:
        """Whether a decode step in a refill's place never makes a batch slower: additive cost, prompts long enough."""
        if not self.cost.additive:
            return False
        a = self.cost.coefficient
        tokens = min(r.input_tokens for r in self.requests) + 1
        refill = a("n_prefill") + a("tokens") * tokens + a("prefill_square") * tokens * tokens
        decode = a("n_decode") + a("tokens") + a("decode_reads") * (tokens - 1) + a("decode_batch")
        return refill >= decode and a("tokens") >= a("decode_reads")

    def _fill_ticks(self, tokens: int) -> int:
        return self.cost.batch_ticks(Features(1, 1, 0, 1, 0, tokens, tokens * tokens, 0, 0))

    def settle(self, by_overhead: bool, most_labels: int) -> tuple[_Label | None, int]:
        """First label with everyone done, in order of worst TTFT or of overhead; and how many were settled."""
        start = _Label(tuple((0, ABSENT) for _ in self.requests), 0, 0, 0, None, None)
        key: Callable[[_Label], int] = (lambda label: label.overhead) if by_overhead else self._worst
        kept: dict[Places, list[tuple[int, int]]] = {}
        queue = [(key(start), 0, 0, start)]
        pushed = settled = 0
        while queue and settled < most_labels:
            _, _, _, label = heapq.heappop(queue)
            now, other = label.now, label.overhead if by_overhead else label.worst
            known = kept.setdefault(label.places, [])
            if any(a <= now and b <= other for a, b in known):
                continue
            known.append((now, other))
            settled += 1
            left = self._left(label.places)
            if left == 0:
                return label, settled
            for move in self._moves(label.places):
                after = self._apply(label, move)
                if after is not None:
                    pushed += 1
                    heapq.heappush(queue, (key(after), left, pushed, after))
        return None, settled

    def _apply(self, label: _Label, move: _Move) -> _Label | None:
        """The label after a move; None if it breaks a limit."""
        now = max(label.now, move.latest_arrival) + move.duration
        worst = max([label.worst, *(now - self.arrival[i] for i in move.first_tokens)])
        overhead = label.overhead + move.overhead
        after = _Label(move.places, now, worst, overhead, move.batch, label)
        if self.limit is not None and self._end(after) > self.limit:
            return None
        if self.most_worst is not None and self._worst(after) > self.most_worst:
            return None
        return after

    def _worst(self, label: _Label) -> int:
        """Lower bound on the final worst TTFT: whoever waits needs its own prefill yet."""
        waits = (max(label.now - self.arrival[i], 0) + self.own_prefill[i]
                 for i, (k, _) in enumerate(label.places) if k == 0 and self.urgent[i])  # fmt: skip
        return max([label.worst, *waits])

    def _left(self, places: Places) -> int:
        return sum(r.output_tokens - k for r, (k, _) in zip(self.requests, places, strict=True))

    def _end(self, label: _Label) -> int:
        """Lower bound on the makespan."""
        rest = self.rest_of.get(label.places)
        if rest is None:
            rest = self.rest_of[label.places] = self._rest_ticks(label.places)
        late = max([self.arrival[i] + self.own_prefill[i] for i, (k, _) in enumerate(label.places) if k == 0],
                   default=0)  # fmt: skip
        return max(label.now + rest, late)

    def _rest_ticks(self, places: Places) -> int:
        """Least time of the batches still needed: the cost at their total features.

        A sum of largest pieces is at least the largest sum. Every token still to come takes a slot, its KVs' room
        after the batch (those above half of M are alone there), and, where refills are dearer, at least a decode step.
        """
        prefills = decodes = decode_batches = tokens = square = reads = 0
        room = self.instance.kv_capacity_tokens
        sizes = [r.input_tokens + g for r, (k, _) in zip(self.requests, places, strict=True)
                 for g in range(k, r.output_tokens)]  # fmt: skip
        batches = max(-(-len(sizes) // self.slots), -(-sum(sizes) // room), sum(2 * size > room for size in sizes))
        for r, (k, _) in zip(self.requests, places, strict=True):
            left = r.output_tokens - k
            batches = max(batches, left)
            tokens += left
            if k == 0:
                prefills, tokens, square = prefills + 1, tokens + r.input_tokens - 1, square + r.input_tokens**2
            if self.lazy:
                steps = left - (k == 0)
                decodes, decode_batches = decodes + steps, max(decode_batches, steps)
                reads += sum(r.input_tokens + g - 1 for g in range(max(k, 1), r.output_tokens))
        if not batches:
            return 0
        decode_batches = max(decode_batches, -(-decodes // self.slots))
        return self.cost.batch_ticks(Features(batches, int(prefills > 0), decode_batches, prefills, decodes, tokens,
                                              square, 0, reads))  # fmt: skip

    def _moves(self, places: Places) -> list[_Move]:
        moves = self.moves_of.get(places)
        if moves is None:
            moves = self.moves_of[places] = list(self._all_moves(places))
        return moves

    def _all_moves(self, places: Places) -> Iterator[_Move]:
        active = [i for i, (k, _) in enumerate(places) if k < self.requests[i].output_tokens]
        for n in range(1, min(self.slots, len(active)) + 1):
            for chosen in combinations(active, n):
                others = [i for i in active if i not in chosen]
                for targets in product(*(self._targets(places[i]) for i in others)):
                    move = self._move(places, chosen, dict(zip(others, targets, strict=True)))
                    if move is not None:
                        yield move

    def _targets(self, place: Place) -> tuple[int, ...]:
        """Where the KVs of a request may be after a batch that does not process it."""
        where = place[1]
        if where == ABSENT or (where == RESIDENT and self.no_refills):
            return (where,)
        if where == HOST:
            return (HOST, RESIDENT)
        dropped = (ABSENT,) if self.rules.preemption else ()
        moved = (HOST,) if self.rules.swap is not None and not self.roomy else ()
        return (RESIDENT, *dropped, *moved)

    def _move(self, places: Places, chosen: tuple[int, ...], targets: dict[int, int]) -> _Move | None:
        """Process the chosen, move the others' KVs to their targets; None if that breaks a rule or drops needlessly."""
        requests = self.requests
        held = [r.input_tokens + k - 1 for r, (k, _) in zip(requests, places, strict=True)]
        fills = [i for i in chosen if places[i][1] == ABSENT]
        process = tuple((i, held[i] + 1 if i in fills else 1) for i in chosen)
        if sum(c for _, c in process) > self.instance.token_budget:
            return None
        moved = {i: (places[i][1], target) for i, target in targets.items()}
        preempt = tuple(i for i, way in moved.items() if way == (RESIDENT, ABSENT))
        swap_out = tuple(i for i, way in moved.items() if way == (RESIDENT, HOST))
        back = [i for i, way in moved.items() if way == (HOST, RESIDENT)]
        swap_in = (*(i for i in chosen if places[i][1] == HOST), *back)
        kv = sum(held[i] + 1 for i in chosen) + sum(held[i] for i, target in targets.items() if target == RESIDENT)
        room = self.instance.kv_capacity_tokens - kv
        if room < 0 or (self.lazy and any(held[i] <= room for i in preempt)):
            return None
        link = self.rules.swap
        transfers = 0 if link is None else sum(link.transfer_ticks(held[i]) for i in (*swap_out, *swap_in))
        compute = self._ticks(fills, [i for i in chosen if i not in fills], held)
        fresh = [i for i in fills if places[i][0] == 0]
        plain = self._ticks(fresh, [i for i in chosen if i not in fresh], held) if len(fresh) < len(fills) else compute
        after = list(places)
        for i, target in targets.items():
            after[i] = (places[i][0], target)
        for i in chosen:
            k = places[i][0] + 1
            after[i] = (k, RESIDENT if k < requests[i].output_tokens else ABSENT)
        batch = Batch(process, preempt, None, swap_out, swap_in)
        first_tokens = tuple(i for i in fresh if self.urgent[i])
        latest = max(self.arrival[i] for i in chosen)
        return _Move(batch, tuple(after), latest, compute + transfers, transfers + compute - plain, first_tokens)

    def _ticks(self, fills: list[int], decodes: list[int], held: list[int]) -> int:
        """Time of a batch of whole fills and decode steps, by the KVs each request holds or would hold."""
        sizes = [held[i] + 1 for i in fills]
        return self.cost.batch_ticks(Features(
            1, int(bool(fills)), int(bool(decodes)), len(fills), len(decodes), sum(sizes) + len(decodes),
            sum(s * s for s in sizes), 0, sum(held[i] for i in decodes),
        ))  # fmt: skip
