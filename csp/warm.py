"""First schedules: the best a heuristic scheduler makes, or one request after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

from sim.cost.model import CostModel
from sim.engine import simulate
from sim.errors import InputError, StoppedError
from sim.instance import Instance
from sim.registry import names
from sim.replay import Replay, RuleError, Rules, replay
from sim.schedule import Batch, Schedule

SCHEDULERS = ("vllm", "vllm_hy", "sarathi", "sarathi_cs", "sarathi_nocp", "lookahead", "shortest_remaining", "mc_sf")
SUFFIXES = ("pf", "nrf", "srf")


def heuristic_schedules(
    instance: Instance, cost: CostModel, rules: Rules, stopped: Callable[[], bool] = lambda: False, *,
    serial_too: bool = True,
) -> Iterator[tuple[str, Replay]]:  # fmt: skip
    """(name, replay) of heuristic schedules that keep the rules, the serial one first, until ``stopped()``."""
    serial = serial_schedule(instance, rules) if serial_too else None
    if serial is not None:
        yield "serial", replay(instance, serial, rules=rules, cost=cost)
    known = names("sim.schedulers")
    for name in [f"{base}_{suffix}" for suffix in SUFFIXES for base in SCHEDULERS if base in known]:
        if stopped():
            return
        try:
            run = simulate(instance, name, cost=cost, until=stopped)
            if not run.stalled and not run.infeasible:
                yield name, replay(instance, run.replay.schedule, rules=rules, cost=cost)
        except StoppedError:
            return
        except (RuleError, InputError):  # breaks these rules, or does not take this suffix
            continue


def best_heuristic(
    instance: Instance, cost: CostModel, rules: Rules, value: Callable[[Replay], int | Fraction],
    allowed: Callable[[Replay], bool] = lambda run: True, stopped: Callable[[], bool] = lambda: False, *,
    serial_too: bool = True,
) -> tuple[str, Replay] | None:  # fmt: skip
    """The heuristic schedule of least value that keeps the rules and is allowed; None where there is none.

    If none is allowed, smaller token budgets are tried: they make batches shorter.

    Parameters
    ----------
    stopped
        Asked before each scheduler.
    serial_too
        Whether one request after the other counts; where a schedule is known it takes long and is hardly better.
    """
    budget = instance.token_budget
    while True:
        smaller = instance.replace(token_budget=budget)
        made = heuristic_schedules(smaller, cost, rules, stopped, serial_too=serial_too)
        found = [(name, replace(run, instance=instance)) for name, run in made if allowed(run)]
        if found or budget == 1 or not rules.chunking:
            return min(found, key=lambda pair: value(pair[1]), default=None)
        budget = min(budget, max(r.peak_kv_tokens for r in instance.requests)) // 2 or 1


def serial_schedule(instance: Instance, rules: Rules) -> Schedule | None:
    """One request after the other, in order of arrival; None where a prompt cannot be filled in one batch but must."""
    batches: list[Batch] = []
    for i, request in sorted(enumerate(instance.requests), key=lambda pair: pair[1].arrival_ns):
        left = request.input_tokens
        if left > instance.token_budget and not rules.chunking:
            return None
        while left:
            batches.append(Batch(((i, min(left, instance.token_budget)),)))
            left -= min(left, instance.token_budget)
        batches += [Batch(((i, 1),))] * (request.output_tokens - 1)
    return Schedule(tuple(batches))
