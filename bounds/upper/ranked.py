"""Ranked: what a service would do that knew all lengths and admitted by volume, smallest first.

The volume of a request is the machine time it takes, memory held included (`csp.relaxations.volumes`); smallest volume
first is what the lower bound of mean completion and mean TTFT relaxes. Several schedulers are simulated with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from csp.relaxations.aggregate import Relaxation
from csp.relaxations.load import load_of
from csp.relaxations.patterns import charges
from csp.relaxations.volumes import volumes
from sim.cost.model import CostModel
from sim.engine import simulate
from sim.errors import StoppedError
from sim.instance import Instance
from sim.schedule import Schedule

OBJECTIVES = ("mean_completion", "mean_ttft")
SCHEDULERS = ("sarathi_cs_pf_priority", "vllm_hy_pf_priority", "vllm_pf_priority", "sarathi_cs_lookahead_priority")
CAPS = (64, 32, 128, 16)
"""Tried as max_num_seqs: fewer requests at a time complete each of them sooner."""


def schedules(
    instance: Instance, cost: CostModel, objective: str, until: Callable[[], bool], below_ticks: float
) -> Iterator[tuple[Schedule, str]]:
    """The schedules of the simulations, until ``until()`` says stop; none where requests arrive prefilled."""
    if any(r.prefilled or r.prefix for r in instance.requests):
        return
    ranked = by_volume(instance, cost, first_token=objective == "mean_ttft")
    most = instance.max_num_seqs or len(instance.requests)
    runs = [(name, most) for name in SCHEDULERS]
    runs[1:1] = [(SCHEDULERS[0], cap) for cap in CAPS if cap < most]
    for name, cap in runs:
        if until():
            return
        try:
            done = simulate(ranked.replace(max_num_seqs=min(cap, most)), name, cost=cost, until=until)
        except StoppedError:
            return
        if not done.stalled:
            words = name.replace("_priority", " by volume") + (f", at most {cap}" if cap < most else "")
            yield done.replay.schedule, words


def by_volume(instance: Instance, cost: CostModel, *, first_token: bool) -> Instance:
    """The instance with priorities by volume, of the whole request or of its first token."""
    load = load_of(instance)
    relaxation = Relaxation(load, cost, 1, 1)
    weights = relaxation.default_multipliers().weights if cost.additive else relaxation.proposed().weights
    theirs = volumes(load, charges(load, cost, weights), "memory", first_token=first_token).volume
    kinds = {(i, o): kind for kind, (i, o, _) in enumerate(load.lengths)}
    volume = np.array([theirs[kinds[r.input_tokens, r.output_tokens]] for r in instance.requests])
    rank = np.argsort(np.argsort(volume, kind="stable"), kind="stable")
    requests = tuple(replace(r, priority=int(place)) for r, place in zip(instance.requests, rank, strict=True))
    return instance.replace(requests=requests)
