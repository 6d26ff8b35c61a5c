"""The requests that take a decode step in every batch, kept as running sums and a heap of completions."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from heapq import heappop, heappush

from sim.instance import Instance

Key = tuple[int, ...]


class Decoders:
    """Ready requests in the scheduler's order; only changes cost anything.

    A decoder's state follows from one number, the decode step ``finish`` after which it is complete: at step s it has
    generated O - (finish - s) tokens and holds I + O - 1 - (finish - s) KVs.

    Attributes
    ----------
    steps
        Decode steps so far.
    order
        The decoders by key, smallest first.
    reads
        KVs they hold together.
    generated
        Tokens generated per request, true for whoever is not among the decoders.
    """

    def __init__(self, instance: Instance) -> None:
        self._size = instance.block_size
        self._inputs = [r.input_tokens for r in instance.requests]
        self._outputs = [r.output_tokens for r in instance.requests]
        self.generated = [0] * len(self._inputs)
        self._finish = [-1] * len(self._inputs)
        self._key: list[Key] = [()] * len(self._inputs)
        self._heap: list[tuple[int, int]] = []
        self._opens: Counter[int] = Counter()
        """Decoders by the decode step, modulo the block size, at which they open a block."""
        self.steps = self.reads = 0
        self.order: list[int] = []
        self._keys: list[Key] = []
        self._left: list[int] = []
        self._fresh: dict[int, None] = {}

    def kv(self, i: int) -> int:
        """KVs a decoder holds."""
        return self._inputs[i] + self._outputs[i] - 1 - self._finish[i] + self.steps

    def has(self, i: int) -> bool:
        """Whether a request is among the decoders."""
        return self._finish[i] >= 0

    def opens_block(self, i: int) -> bool:
        """Whether a decoder's next step opens a block."""
        return self.kv(i) % self._size == 0

    def join(self, i: int, key: Key) -> None:
        """Add a ready request at its place; keys are unique."""
        finish = self.steps + self._outputs[i] - self.generated[i]
        self._finish[i] = finish
        heappush(self._heap, (finish, i))
        if not self._keys or key > self._keys[-1]:
            self._keys.append(key)
            self.order.append(i)
        else:
            place = bisect_left(self._keys, key)
            self._keys.insert(place, key)
            self.order.insert(place, i)
        self._key[i] = key
        self._fresh[i] = None
        kv = self._inputs[i] + self.generated[i] - 1
        self.reads += kv
        if self._size > 1:
            self._opens[(self.steps - kv) % self._size] += 1

    def leave(self, i: int) -> int:
        """Take a request out; the KVs it holds."""
        place = bisect_left(self._keys, self._key[i])
        del self._keys[place], self.order[place]
        kv = self.kv(i)
        self._finish[i] = -1
        self.generated[i] = kv + 1 - self._inputs[i]
        self.reads -= kv
        if self._size > 1:
            self._opens[(self.steps - kv) % self._size] -= 1
        if i in self._fresh:
            del self._fresh[i]
        else:
            self._left.append(i)
        return kv

    def steps_to_completion(self) -> int:
        """Decode steps until the first decoder is complete; there must be one."""
        heap = self._heap
        while self._finish[heap[0][1]] != heap[0][0]:
            heappop(heap)
        return heap[0][0] - self.steps

    def new_blocks(self) -> int:
        """Blocks the next decode step opens: one for each decoder whose last block is full."""
        return len(self.order) if self._size == 1 else self._opens[self.steps % self._size]

    def steps_within(self, free_blocks: int) -> int:
        """Decode steps for which ``free_blocks`` are enough; there must be a decoder."""
        cycles, free = divmod(free_blocks, len(self.order))
        if self._size == 1:
            return cycles
        steps = cycles * self._size
        while (opened := self._opens[(self.steps + steps) % self._size]) <= free:
            free -= opened
            steps += 1
        return steps

    def advance(self, repeat: int) -> tuple[list[int], int]:
        """Take decode steps; who is complete (and out) afterwards, and the blocks opened on the way."""
        if self._size == 1:
            opened = repeat * len(self.order)
        else:
            cycles, rest = divmod(repeat, self._size)
            opened = cycles * len(self.order) + sum(self._opens[(self.steps + t) % self._size] for t in range(rest))
        self.steps += repeat
        self.reads += repeat * len(self.order)
        completed = []
        heap = self._heap
        while heap and heap[0][0] <= self.steps:
            finish, i = heappop(heap)
            if self._finish[i] == finish:
                self.leave(i)
                completed.append(i)
        return completed, opened

    def changes(self) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
        """Who left and who joined (and where) since the last call, as a `sim.runs.Run` tells it."""
        if not self._left and not self._fresh:
            return (), ()
        left = tuple(self._left)
        joined = tuple(sorted((bisect_left(self._keys, self._key[i]), i) for i in self._fresh))
        self._left.clear()
        self._fresh.clear()
        return left, joined
