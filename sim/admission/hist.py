"""Histogram (SRF+Hist of Kim et al., section 8): defers requests whose expected length would not fit.

Completed requests are averaged per floor(log2(input tokens)). A request starts only if the mean total length I + O of
its bucket is free, though only its known tokens are allocated. Empty buckets predict nothing.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from sim.admission import AdmissionParameters
from sim.admission.asis import AsIs
from sim.replay import BatchRecord, State
from sim.schedulers._memory import Memory

if TYPE_CHECKING:
    from sim.instance import Instance


class Histogram(AsIs):
    """Learned online from completions."""

    def __init__(self, instance: Instance, parameters: AdmissionParameters) -> None:
        super().__init__(instance, parameters)
        self.completed: defaultdict[int, int] = defaultdict(int)
        self.total_tokens: defaultdict[int, int] = defaultdict(int)

    def allows(self, i: int, state: State, memory: Memory, running: list[int]) -> bool:
        """Whether the expected total length is free, too."""
        bucket = state.inputs[i].bit_length()
        if not self.completed[bucket]:
            return True
        expected = -(-self.total_tokens[bucket] // self.completed[bucket])
        return memory.missing(i, max(expected, state.sequence_tokens(i))) <= memory.free_blocks

    def update(self, record: BatchRecord, state: State) -> None:
        """Learn the completed requests' lengths."""
        for i in record.completed:
            bucket = state.inputs[i].bit_length()
            self.completed[bucket] += 1
            self.total_tokens[bucket] += state.inputs[i] + state.outputs[i]


RULE = Histogram
