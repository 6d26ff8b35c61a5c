"""How few batches every schedule has, and how few of them prefill.

Counted are batches that process at least one token, so that the bounds hold for engines that also make empty calls.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from itertools import pairwise

from csp.relaxations.load import Load, load_of
from csp.relaxations.packing import least_bins
from sim.instance import Instance

MAX_PACKED_SIZES = 20_000
"""Dual feasible functions are tried only when so few sizes (or ranges of them) have to be looked at."""


@dataclass(frozen=True, slots=True)
class LeastBatches:
    """Lower bounds on the number of batches J, each with its proof.

    Attributes
    ----------
    critical_path
        max (ceil(I / C) + O - 1): a request generates at most one token a batch, and a prompt needs its chunks.
    tokens
        ceil(sum (I + O - 1) / C): each token but a request's last is processed at least once.
    memory_area
        ceil(sum over i, k of (I + k - 1) / M): whoever generates its k-th token holds I + k - 1 KVs after that batch.
        With blocks, in blocks. Prompts longer than C also hold what their earlier chunks filled.
    sequences
        ceil(sum (ceil(I / C) + O - 1) / max_num_seqs); 0 without a cap.
    packing
        The same items as the memory area, as bin packing (dual feasible functions).
    packing_function
        The dual feasible function that gives it.
    """

    critical_path: int
    tokens: int
    memory_area: int
    sequences: int
    packing: int
    packing_function: str

    @property
    def best(self) -> int:
        """The largest."""
        return max(self.critical_path, self.tokens, self.memory_area, self.sequences, self.packing)

    def to_dict(self) -> dict[str, int | str]:
        """For reports."""
        return asdict(self)


def least_batches(instance: Instance) -> LeastBatches:
    """Lower bounds on the number of batches of every schedule.

    Examples
    --------
    >>> from sim.instance import load_instance
    >>> least = least_batches(load_instance("paper-7.2-i0032"))
    >>> least.critical_path, least.tokens, least.memory_area, least.packing
    (4, 1, 9, 14)
    """
    return least_batches_of(load_of(instance))


def least_batches_of(load: Load) -> LeastBatches:
    """The same, for an instance already counted."""
    cap = load.token_budget
    needed = [(-(-i // cap) + o - 1, n) for i, o, n in load.lengths] + [(o - 1, n) for _, o, n in load.prefilled]
    critical = max(batches for batches, _ in needed)
    steps = sum(n * batches for batches, n in needed)
    tokens = -(-load.least_tokens // cap)
    area = -(-load.area_blocks() // load.kv_blocks)
    sequences = 0 if load.max_num_seqs is None else -(-steps // load.max_num_seqs)
    packing, function = least_bins(item_counts(load), load.kv_blocks)
    return LeastBatches(critical, tokens, area, sequences, packing, function)


def least_prefill_batches(load: Load) -> int:
    """Least number of batches in which something prefills.

    The largest of: the prompt tokens over min(M, C), for what a batch prefills is resident after it; the chunks of the
    longest prompt; the prompts packed whole into M, since each is resident when its first token is generated; and the
    chunks over max_num_seqs.
    """
    cap = load.token_budget
    if not load.lengths:
        return 0
    bounds = [1, -(-load.input_tokens // min(cap, load.kv_capacity_tokens))]
    bounds.append(max(-(-i // cap) for i, _, _ in load.lengths))
    prompts: Counter[int] = Counter()
    for i, _, n in load.lengths:
        prompts[-(-i // load.block_size)] += n
    bounds.append(least_bins(prompts, load.kv_blocks)[0])
    if load.max_num_seqs is not None:
        bounds.append(-(-sum(n * -(-i // cap) for i, _, n in load.lengths) // load.max_num_seqs))
    return max(bounds)


def item_counts(load: Load) -> dict[int, int]:
    """Blocks held when a token is generated -> number of such tokens; small items left out when sizes are too many."""
    b = load.block_size
    items = [(i, o, n) for i, o, n in load.lengths] + [(i + 1, o - 1, n) for i, o, n in load.prefilled]
    largest = max(-(-(i + o - 1) // b) for i, o, _ in items)
    floor = max(1, largest - MAX_PACKED_SIZES + 1)
    steps: Counter[int] = Counter()
    counts: Counter[int] = Counter()
    for i, o, n in items:
        first, last = -(-i // b), -(-(i + o - 1) // b)
        if first == last:
            counts[first] += n * o
            continue
        counts[first] += n * (first * b - i + 1)
        counts[last] += n * (i + o - 1 - (last - 1) * b)
        steps[first + 1] += n * b
        steps[last] -= n * b
    running = 0
    for start, stop in pairwise(sorted(steps)):
        running += steps[start]
        if running:
            for size in range(max(start, floor), stop):
                counts[size] += running
    return {size: n for size, n in counts.items() if size >= floor and n}
