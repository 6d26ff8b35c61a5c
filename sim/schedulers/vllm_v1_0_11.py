"""vLLM V1 as of 0.11.0: admits whatever first chunk fits; passes over long prompts where chunking is off."""

from __future__ import annotations

from dataclasses import dataclass

from sim.schedulers._vllm_v1 import V1Parameters, VllmV1

NAME = "vllm-v1-0.11"


@dataclass(frozen=True, slots=True)
class V1Parameters011(V1Parameters):
    """Settings of 0.11.0.

    Parameters
    ----------
    keep_victim_entry
        With priorities, a victim already placed in the batch keeps its entry, and the next running request is passed
        over: a defect of 0.11.0. The entry's KVs are gone, so such a batch breaks the rules of a schedule; it is
        repeated only to compare with runs of the real engine.
    """

    reserve_full_isl: bool = False
    keep_victim_entry: bool = False


class VllmV1011(VllmV1):
    """vLLM V1, 0.11.0."""

    DEFAULTS = V1Parameters011()
    SKIPS_LONG_PROMPTS = True
    STOPS_AT_OWN_PREEMPTION = True
    THRESHOLD_FOR_LONE = True

    def _take_back(self, victim: int, placed: bool) -> int:
        assert isinstance(self.parameters, V1Parameters011)
        if placed and self.parameters.keep_victim_entry:
            return 0
        return super()._take_back(victim, placed)


SCHEDULER = VllmV1011
