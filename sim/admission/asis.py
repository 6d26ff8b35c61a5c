"""As is: whoever fits in memory now starts; what it needs later is not looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.admission import AdmissionParameters
from sim.replay import BatchRecord, State

if TYPE_CHECKING:
    from sim.instance import Instance
    from sim.schedulers._memory import Memory


class AsIs:
    """Admit whatever fits; base of the other rules.

    Attributes
    ----------
    prefill_only
        Whether the scheduler's prefills run in batches of their own, while everybody else waits.
    """

    prefill_only = False

    def __init__(self, instance: Instance, parameters: AdmissionParameters) -> None:
        self.instance, self.parameters = instance, parameters

    def hold_tokens(self, i: int, state: State) -> int:
        """The tokens known so far: a whole prefill is allocated at once, chunked or not."""
        return state.sequence_tokens(i)

    def allows(self, i: int, state: State, memory: Memory, running: list[int]) -> bool:
        """Always."""
        return True

    def update(self, record: BatchRecord, state: State) -> None:
        """Nothing to learn."""


RULE = AsIs
