"""What the event engine needs to know of a scheduler; whatever it does not know is left to the step engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sim.admission.asis import AsIs
from sim.admission.hist import Histogram
from sim.admission.pf import PreemptionFree
from sim.admission.watermark import Watermark
from sim.instance import Instance
from sim.preemption import least_computed, longest, lowest_priority, most_remaining, nrf, oldest, srf
from sim.queues import Rank
from sim.schedulers._paper import PaperScheduler
from sim.schedulers._vllm_v1 import VllmV1
from sim.schedulers.sarathi import Sarathi
from sim.schedulers.sarathi_cs import SarathiContextSize
from sim.schedulers.sarathi_nocp import SarathiNoChunking
from sim.schedulers.vllm import Vllm
from sim.schedulers.vllm_hy import VllmHybrid
from sim.schedulers.vllm_v0 import VllmV0Default
from sim.schedulers.vllm_v1_0_11 import VllmV1011

if TYPE_CHECKING:
    from sim.events.engine import EventEngine


@dataclass(frozen=True, slots=True)
class VictimKey:
    """A victim rule as a sort key: the largest is preempted first.

    Parameters
    ----------
    now
        Key of a request that holds ``kv`` KVs and is ready or not, as `sim.preemption` has it.
    drift
        What to add per decode step so that the key of a decoder stays what it is.
    """

    now: Callable[[EventEngine, int, int, bool], tuple[int, ...]]
    drift: int = 0


_VICTIMS: dict[object, VictimKey | None] = {
    nrf.order: None,
    srf.order: VictimKey(lambda engine, i, kv, ready: (-kv - ready,), 1),
    longest.order: VictimKey(lambda engine, i, kv, ready: (kv + ready,), -1),
    oldest.order: VictimKey(lambda engine, i, kv, ready: (-engine.arrival_ticks[i], -i)),
    lowest_priority.order: VictimKey(lambda engine, i, kv, ready: (engine.instance.requests[i].priority,)),
    most_remaining.order: VictimKey(lambda engine, i, kv, ready: (engine.outputs[i] - engine.generated_now(i),), 1),
    least_computed.order: VictimKey(lambda engine, i, kv, ready: (-engine.generated_now(i),), 1),
}


@dataclass(frozen=True, slots=True)
class Traits:
    """A scheduler in the event engine's terms.

    Parameters
    ----------
    token_budget, max_running
        C and the cap on running requests in force.
    decode_first
        Decodes, then fills, in one batch; otherwise prefills first.
    chunked
        Whether fills may be split.
    hybrid
        Whether prefills and decodes share a batch (a decode-first scheduler's always do).
    caps_decodes
        Whether the token budget counts decode steps, too.
    orders_by_arrival
        Whether running requests are sorted by arrival before the victim rule sorts them.
    victim
        None for the order in which requests started.
    rank
        Of the waiting queue; None for first come first served.
    reserves_peak
        Whether I + O - 1 is reserved at admission.
    kept_blocks, kept_when_alone
        Blocks that admission leaves free, and whether it does so for a request that would be alone, too.
    histogram
        Whether admission looks at the mean length of completed requests.
    blocks_by_chunk
        Whether a fill is given blocks chunk by chunk instead of all at admission.
    admits_whole
        With ``blocks_by_chunk``: whether all known tokens must fit at admission.
    wants_free_block
        Whether a decode step wants a free block even where the last one has room.
    ignores_unfit
        Whether requests too long for the budget or the memory are dropped from the queue instead of blocking it.
    """

    token_budget: int
    max_running: int
    decode_first: bool
    chunked: bool
    hybrid: bool = True
    caps_decodes: bool = True
    orders_by_arrival: bool = False
    victim: VictimKey | None = None
    rank: Rank | None = None
    reserves_peak: bool = False
    kept_blocks: int = 0
    kept_when_alone: bool = False
    histogram: bool = False
    blocks_by_chunk: bool = False
    admits_whole: bool = True
    wants_free_block: bool = False
    ignores_unfit: bool = False


def traits_of(scheduler: object, instance: Instance) -> Traits | None:
    """Traits of a fresh scheduler; None if it decides in ways that are not known here."""
    kind = type(scheduler)
    if getattr(scheduler, "order", None) not in _VICTIMS or getattr(scheduler, "needs_swap", False):
        return None
    if kind in (Vllm, VllmHybrid, Sarathi, SarathiContextSize, SarathiNoChunking):
        assert isinstance(scheduler, PaperScheduler)
        return _paper(scheduler)
    if kind in (VllmV1, VllmV1011):
        assert isinstance(scheduler, VllmV1)
        return _v1(scheduler)
    if kind is VllmV0Default:
        assert isinstance(scheduler, VllmV0Default)
        return _v0(scheduler)
    return None


def _paper(scheduler: PaperScheduler) -> Traits | None:
    admission = scheduler.admission
    rule = type(admission)
    if rule not in (AsIs, PreemptionFree, Watermark, Histogram):
        return None
    kept = 0
    if isinstance(admission, Watermark):
        kept = int(admission.parameters.watermark * scheduler.memory.total_blocks)
    return Traits(
        scheduler.token_budget, scheduler.max_running, decode_first=isinstance(scheduler, Sarathi),
        chunked=scheduler.CHUNKED, hybrid=not scheduler.PREFILL_ONLY, orders_by_arrival=isinstance(scheduler, Vllm),
        victim=_VICTIMS[scheduler.order], rank=scheduler.rank, reserves_peak=rule is PreemptionFree, kept_blocks=kept,
        histogram=rule is Histogram,
    )  # fmt: skip


def _v1(scheduler: VllmV1) -> Traits | None:
    settings = scheduler.parameters
    known = (
        not scheduler.by_priority and settings.long_prefill_token_threshold == 0
        and type(scheduler.admission) is AsIs and scheduler.order is nrf.order
        and (settings.enable_chunked_prefill or not scheduler.SKIPS_LONG_PROMPTS)
    )  # fmt: skip
    if not known:
        return None
    return Traits(
        scheduler.token_budget, scheduler.max_running, decode_first=True, chunked=settings.enable_chunked_prefill,
        rank=scheduler.rank, kept_blocks=scheduler.watermark_blocks, blocks_by_chunk=True,
        admits_whole=settings.reserve_full_isl,
    )  # fmt: skip


def _v0(scheduler: VllmV0Default) -> Traits | None:
    if scheduler.by_priority:
        return None
    return Traits(
        scheduler.token_budget, scheduler.max_running, decode_first=False, chunked=False, hybrid=False,
        caps_decodes=False, victim=_VICTIMS[scheduler.order], reserves_peak=scheduler.preemption_free,
        kept_blocks=scheduler.watermark_blocks, kept_when_alone=True,
        wants_free_block=not scheduler.preemption_free, ignores_unfit=True,
    )  # fmt: skip
