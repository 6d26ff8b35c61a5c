"""Batch times from the coefficients of a cost model, by this package's own arithmetic."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from sim.cost import CostModel
from tests.oracle.slots import FRESH, Action, Limits, Slot, actions

MOST_MINORANTS = 16


class Linear(NamedTuple):
    """One affine function below a cost model: ticks per batch, per prefill batch, and so on."""

    batch: int
    prefill_batch: int
    decode_batch: int
    prefill: int
    decode: int
    token: int
    square: int
    prefill_reads: int
    decode_reads: int

    def of_action(self, action: Action, transfer_counts: bool) -> int:
        """What an action adds to its batch, beyond the batch's fixed charges."""
        return (
            self.prefill * action.prefill
            + self.decode * action.decode
            + self.token * action.tokens
            + self.square * action.square
            + self.prefill_reads * action.prefill_reads
            + self.decode_reads * action.decode_reads
            + (action.transfer if transfer_counts else 0)
        )


def batch_ticks(cost: CostModel, n_p: int, n_d: int, tokens: int, square: int, p_reads: int, d_reads: int) -> int:
    """Ticks of one non-empty batch: sum over groups of the largest piece."""
    flags = (1, 1 if n_p else 0, 1 if n_d else 0)
    total = 0
    for group in cost.groups:
        values = [
            b * flags[0] + bp * flags[1] + bd * flags[2] + sp * n_p + sd * n_d + o * tokens + q * square + rp * p_reads
            + rd * d_reads
            for b, bp, bd, sp, sd, o, q, rp, rd in group.pieces
        ]  # fmt: skip
        total += max(values)
    return total


def minorants(cost: CostModel) -> list[Linear]:
    """Affine functions that never exceed the batch time: one piece chosen from each group."""
    choices = list(product(*(group.pieces for group in cost.groups)))[:MOST_MINORANTS]
    return [Linear(*(sum(column) for column in zip(*choice, strict=True))) for choice in choices]


def cheapest_rest(inputs: int, outputs: int, linear: Linear, limits: Limits, most_tokens: int) -> dict[Slot, int]:
    """Least cost, without fixed charges, for one request alone to finish; by state, dead ends left out."""
    counts = limits.swap is None or not limits.swap.overlap
    edges: dict[Slot, list[tuple[int, Slot | None]]] = {}
    open_slots = [FRESH]
    while open_slots:
        slot = open_slots.pop()
        if slot in edges:
            continue
        edges[slot] = []
        for action in actions(inputs, outputs, slot, limits, most_tokens):
            if action.after != slot:
                edges[slot].append((linear.of_action(action, counts), action.after))
                if action.after is not None:
                    open_slots.append(action.after)
    never = 2**200
    rest = dict.fromkeys(edges, never)
    order = sorted(edges, key=lambda s: (-s.generated, -s.kv - s.host_kv))
    changed = True
    while changed:
        changed = False
        for slot in order:
            best = min((w + (0 if to is None else rest[to]) for w, to in edges[slot]), default=never)
            if best < rest[slot]:
                rest[slot], changed = best, True
    return {slot: value for slot, value in rest.items() if value < never}
