"""The numbers of an instance that combinatorial bounds are made of: requests counted by lengths, and sums over sizes.

A token k of a request is generated at *size* s = I + k - 1: after that batch the request holds exactly s KVs, whether
a decode step or a fill generated it (preempted before or not).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from sim.instance import Instance


@dataclass(frozen=True, slots=True)
class Load:
    """Requests counted by (I, O), with the limits they are scheduled under.

    Parameters
    ----------
    lengths
        (I, O, count), sorted, of requests that still need their prompt filled.
    kv_blocks, block_size, token_budget, max_num_seqs
        floor(M / b), b, C and the cap on processed requests (None for no cap).
    prefilled
        (I, O, count) of requests that arrive with their first token and their KVs: only tokens k >= 2 are left.
    """

    lengths: tuple[tuple[int, int, int], ...]
    kv_blocks: int
    block_size: int
    token_budget: int
    max_num_seqs: int | None
    prefilled: tuple[tuple[int, int, int], ...] = ()

    @property
    def kv_capacity_tokens(self) -> int:
        """KVs that fit in whole blocks."""
        return self.kv_blocks * self.block_size

    @property
    def requests(self) -> int:
        """Number of requests that still need their prompt filled."""
        return sum(n for _, _, n in self.lengths)

    @property
    def input_tokens(self) -> int:
        """Sum of I."""
        return sum(n * i for i, _, n in self.lengths)

    @property
    def output_tokens(self) -> int:
        """Sum of O, the tokens to generate."""
        return sum(n * o for _, o, n in self.lengths) + sum(n * (o - 1) for _, o, n in self.prefilled)

    @property
    def least_tokens(self) -> int:
        """Sum of I + O - 1: tokens processed when nothing is ever refilled."""
        return sum(n * (i + o - 1) for i, o, n in self.lengths) + sum(n * (o - 1) for _, o, n in self.prefilled)

    @property
    def input_square(self) -> int:
        """Sum of I^2, the least attention work of the first fills."""
        return sum(n * i * i for i, _, n in self.lengths)

    def decode_sums(self, least: int = 0, most: int | None = None) -> tuple[int, int, int]:
        """Number of tokens k >= 2 whose size s lies in [least, most], and the sums of s and s^2 over them."""
        zero = one = two = 0
        for i, o, n in (*self.lengths, *self.prefilled):
            a, b = max(i + 1, least), i + o - 1
            if most is not None:
                b = min(b, most)
            if a <= b:
                s0, s1, s2 = range_sums(a, b)
                zero, one, two = zero + n * s0, one + n * s1, two + n * s2
        return zero, one, two

    def area_blocks(self) -> int:
        """Block-batches that generating every token occupies, and those the chunks before a first token must.

        A prompt longer than C needs ceil(I / C) batches; before its last j chunks it holds at least I - jC KVs.
        """
        b, budget = self.block_size, self.token_budget
        total = 0
        for i, o, n in self.lengths:
            total += n * (_ceil_sum(i + o - 1, b) - _ceil_sum(i - 1, b))
            total += n * -(-_chunk_sum(i, budget) // b)
        for i, o, n in self.prefilled:
            total += n * (_ceil_sum(i + o - 1, b) - _ceil_sum(i, b))
        return total


def load_of(instance: Instance) -> Load:
    """Count an instance's requests by lengths.

    Raises
    ------
    sim.errors.InputError
        If a request can never fit: nothing can be said about schedules that do not exist.
    """
    instance.require_feasible()
    return Load(_count(instance, False), instance.kv_blocks, instance.block_size, instance.token_budget,
                instance.max_num_seqs, _count(instance, True))  # fmt: skip


def _count(instance: Instance, prefilled: bool) -> tuple[tuple[int, int, int], ...]:
    counts = Counter((r.input_tokens, r.output_tokens) for r in instance.requests if r.prefilled == prefilled)
    return tuple((i, o, n) for (i, o), n in sorted(counts.items()))


def without_shared_prefixes(instance: Instance) -> Instance:
    """Prompts without the prefixes they share: bounds for it hold where prefixes are shared, for each request still
    processes and holds what is its own.
    """
    own = tuple(replace(r, input_tokens=r.input_tokens - r.prefix_tokens, prefix=None, prefix_tokens=0)
                for r in instance.requests)  # fmt: skip
    return instance.replace(requests=own)


def range_sums(a: int, b: int) -> tuple[int, int, int]:
    """Number, sum and sum of squares of the integers a..b.

    >>> range_sums(2, 4)
    (3, 9, 29)
    """
    if a > b:
        return 0, 0, 0
    return b - a + 1, (a + b) * (b - a + 1) // 2, _squares(b) - _squares(a - 1)


def _squares(n: int) -> int:
    return n * (n + 1) * (2 * n + 1) // 6


def _chunk_sum(i: int, budget: int) -> int:
    """Sum of i - j * budget over j >= 1 while positive.

    >>> _chunk_sum(10, 4)
    8
    """
    chunks = -(-i // budget) - 1
    return chunks * i - budget * chunks * (chunks + 1) // 2


def _ceil_sum(n: int, b: int) -> int:
    """Sum of ceil(s / b) over s = 1..n."""
    q, r = divmod(n, b)
    return b * q * (q + 1) // 2 + r * (q + 1)
