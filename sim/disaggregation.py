"""Disaggregated serving: a prefill pool and a decode pool, KVs handed over between them (Kim et al., section 8.3).

Each worker is one machine under the one set of rules (`sim.replay`). A prefill worker fills prompts and generates first
tokens; the KVs then wait for the decode worker, which swaps them in over the transfer link (`Rules.receive`), decodes,
and preempts where its memory runs out: by recomputation, or by offloading to host memory where a link for that is
given. Requests go to workers in turn. The prefill pool never waits for the decode pool.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sim.clock import TICKS_PER_MS, TICKS_PER_NS, ns_from_ticks
from sim.cost.model import CostModel
from sim.engine import Simulation, simulate
from sim.instance import Instance, Request
from sim.replay import ENGINE_RULES, Rules, SwapLink


@dataclass(frozen=True, slots=True)
class Pools:
    """How many workers of each kind and what connects them.

    Parameters
    ----------
    prefill_workers, decode_workers
        Machines, each with the instance's M, C and cost model.
    transfer
        Link from prefill to decode workers.
    offload
        Link from a decode worker to its host memory; None refills preempted requests by recomputation.
    """

    prefill_workers: int
    decode_workers: int
    transfer: SwapLink
    offload: SwapLink | None = None


@dataclass(frozen=True, slots=True)
class Disaggregated:
    """What both pools did.

    Attributes
    ----------
    prefill, decode
        One simulation per worker; a worker without requests is left out.
    prefill_requests, decode_requests
        Per worker, the indices in the whole instance of its requests, in order.
    """

    instance: Instance
    prefill: tuple[Simulation, ...]
    prefill_requests: tuple[tuple[int, ...], ...]
    decode: tuple[Simulation, ...]
    decode_requests: tuple[tuple[int, ...], ...]

    @property
    def makespan_ticks(self) -> int:
        """End of the last batch of any worker."""
        return max(run.replay.makespan_ticks for run in (*self.prefill, *self.decode))

    @property
    def makespan_ms(self) -> float:
        """The same in ms."""
        return self.makespan_ticks / TICKS_PER_MS

    @property
    def preemptions(self) -> int:
        """On the decode side."""
        return sum(sum(run.replay.preemptions) for run in self.decode)

    @property
    def swapped_out(self) -> int:
        """Evictions to host memory on the decode side."""
        return sum(len(batch.swap_out) for run in self.decode for batch in run.replay.schedule.batches)

    @property
    def unfinished(self) -> tuple[int, ...]:
        """Requests that fit and yet never finished, in either pool."""
        left_out = set(self.instance.infeasible())
        return tuple(i for i, t in enumerate(self.completed_ticks()) if t is None and i not in left_out)

    def completed_ticks(self) -> list[int | None]:
        """Per request of the whole instance, when its last token came out."""
        times: list[int | None] = [None] * len(self.instance.requests)
        for runs, members in ((self.prefill, self.prefill_requests), (self.decode, self.decode_requests)):
            for run, indices in zip(runs, members, strict=True):
                for i, ticks in zip(indices, run.replay.completed_ticks, strict=True):
                    if runs is self.decode or self.instance.requests[i].output_tokens == 1:
                        times[i] = ticks
        return times

    def e2e_mean_ms(self) -> float:
        """Mean of completion minus arrival over finished requests."""
        ends = zip(self.completed_ticks(), self.instance.requests, strict=True)
        spans = [t - r.arrival_ns * TICKS_PER_NS for t, r in ends if t is not None]
        return sum(spans) / len(spans) / TICKS_PER_MS


def simulate_disaggregated(
    instance: Instance,
    pools: Pools,
    *,
    prefill_scheduler: str = "sarathi_cs",
    decode_scheduler: str = "sarathi_cs",
    cost: CostModel | None = None,
    rules: Rules = ENGINE_RULES,
) -> Disaggregated:
    """Run both pools.

    Parameters
    ----------
    instance
        Arrivals, lengths, and the M, C and cost model of every worker.
    prefill_scheduler
        One that chunks prompts longer than C; others leave such prompts unfinished and block behind them.
    decode_scheduler
        One that swaps requests in; with an offload link name a refill too ("sarathi_cs_srf_swap").

    Examples
    --------
    >>> instance = Instance((Request(100, 5), Request(50, 3), Request(80, 1)), 1000)
    >>> both = simulate_disaggregated(instance, Pools(2, 1, SwapLink(0, 1000)))
    >>> len(both.prefill), len(both.decode), all(t is not None for t in both.completed_ticks())
    (2, 1, True)
    """
    feasible = [i for i in range(len(instance.requests)) if i not in set(instance.infeasible())]
    order = sorted(feasible, key=lambda i: instance.requests[i].arrival_ns)
    prefill, prefill_members = _run_pool(
        instance, order, pools.prefill_workers, lambda r: replace(r, output_tokens=1), prefill_scheduler, cost, rules
    )
    ready_ns: dict[int, int] = {}
    for run, members in zip(prefill, prefill_members, strict=True):
        for i, ticks in zip(members, run.replay.completed_ticks, strict=True):
            if ticks is not None and instance.requests[i].output_tokens > 1:
                ready_ns[i] = ns_from_ticks(ticks)
    arrived = {i: replace(instance.requests[i], arrival_ns=ns, prefilled=True) for i, ns in ready_ns.items()}
    decode, decode_members = _run_pool(
        instance, sorted(ready_ns, key=lambda i: ready_ns[i]), pools.decode_workers, None, decode_scheduler, cost,
        replace(rules, receive=pools.transfer, swap=pools.offload), arrived,
    )  # fmt: skip
    return Disaggregated(instance, prefill, prefill_members, decode, decode_members)


def _run_pool(
    instance: Instance, order: list[int], workers: int, change: object, scheduler: str, cost: CostModel | None,
    rules: Rules, given: dict[int, Request] | None = None,
) -> tuple[tuple[Simulation, ...], tuple[tuple[int, ...], ...]]:  # fmt: skip
    """Deal the requests out in turn and run every worker that has any."""
    runs, members = [], []
    for worker in range(workers):
        mine = tuple(order[worker::workers])
        if mine:
            requests = [instance.requests[i] if given is None else given[i] for i in mine]
            if callable(change):
                requests = [change(r) for r in requests]
            part = instance.replace(requests=tuple(requests), name=f"{instance.name}, worker {worker}")
            runs.append(simulate(part, scheduler, cost=cost, rules=rules))
            members.append(mine)
    return tuple(runs), tuple(members)
