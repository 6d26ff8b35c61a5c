"""The simulator: a scheduler forms batches, the rules module carries them out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from sim.cost.model import CostModel, load_cost_model
from sim.errors import InputError
from sim.instance import Instance
from sim.replay import ENGINE_RULES, Replay, Rules, State, finish, replay
from sim.runs import RunBatches
from sim.schedule import Schedule
from sim.schedulers import make_scheduler
from sim.scheduling import Scheduler, Service

Engine = Literal["auto", "event", "step"]


@dataclass(frozen=True, slots=True)
class Simulation:
    """A scheduler's run on an instance.

    Attributes
    ----------
    scheduler
        Name.
    replay
        The schedule it made, checked and timed.
    infeasible
        Requests that can never fit in memory; left out.
    stalled
        Requests the scheduler never finished (a prompt larger than its token budget blocks it, for example).
    """

    scheduler: str
    replay: Replay
    infeasible: tuple[int, ...]
    stalled: tuple[int, ...]

    @property
    def why_stalled(self) -> str | None:
        """What blocks the first stalled request, in words; None if none is."""
        if not self.stalled:
            return None
        instance = self.replay.instance
        i = self.stalled[0]
        request, budget, name = instance.requests[i], instance.token_budget, instance.ids[i]
        if request.input_tokens > budget:
            return f"the prompt of request {name}, {request.input_tokens:,} tokens, is longer than C = {budget:,}"
        if request.input_tokens + request.output_tokens - 1 > budget:
            return f"request {name}, once evicted, needs a fill longer than C = {budget:,}"
        return f"request {name} found no room"


def simulate(
    instance: Instance,
    scheduler: str | Scheduler,
    *,
    cost: CostModel | None = None,
    rules: Rules = ENGINE_RULES,
    engine: Engine = "auto",
    until: Callable[[], bool] | None = None,
) -> Simulation:
    """Run a scheduler until every request is finished or nothing moves any more.

    Parameters
    ----------
    scheduler
        A name (see `sim.schedulers`) or a fresh object.
    cost
        Cost model; the instance's by default.
    engine
        "step" forms every batch; "event" goes from change to change (`sim.events`), for schedulers it knows, with the
        same result; "auto" takes "event" where it can.
    until
        Asked before every batch that is formed whether to give up.

    Raises
    ------
    sim.errors.InputError
        If a name is unknown, or "event" is asked for and the scheduler is not known there.
    sim.replay.RuleError
        If the scheduler breaks a rule.
    sim.errors.StoppedError
        If ``until`` said so.

    Examples
    --------
    >>> from sim.instance import load_instance
    >>> run = simulate(load_instance("paper-7.2-i0032"), "vllm")
    >>> round(run.replay.makespan_ms, 3), len(run.replay.schedule)
    (60.181, 14)
    """
    name = scheduler if isinstance(scheduler, str) else type(scheduler).__name__
    policy = make_scheduler(scheduler, instance) if isinstance(scheduler, str) else scheduler
    cost = cost or load_cost_model(instance.cost_model)
    if rules.swap is None and getattr(policy, "needs_swap", False):
        rules = replace(rules, swap=cast(Any, policy).swap_link(cost))
    prefilled = any(r.prefilled for r in instance.requests)
    if prefilled and rules.swap is None and rules.receive is None:
        raise InputError("prefilled requests need a link over which their KVs arrive; see sim.disaggregation",
                         field="requests.prefilled", value=True)  # fmt: skip
    if engine != "step" and not rules.prefix_sharing and not prefilled:
        from sim.events import compact_runs

        runs = compact_runs(policy, instance, cost, rules, until)
        if runs is not None:
            result = replay(instance, Schedule(RunBatches(runs)), rules=rules, cost=cost, complete=False)
            left_out = set(instance.infeasible())
            stalled = tuple(i for i, t in enumerate(result.completed_ticks) if t is None and i not in left_out)
            return Simulation(name, result, instance.infeasible(), stalled)
        if engine == "event":
            raise InputError("the event engine does not know this scheduler", field="scheduler", value=name)
    result, stalled = _step_by_step(instance, policy, cost, rules, until)
    return Simulation(name, result, instance.infeasible(), stalled)


def _step_by_step(
    instance: Instance, policy: Scheduler, cost: CostModel, rules: Rules, until: Callable[[], bool] | None = None
) -> tuple[Replay, tuple[int, ...]]:
    """The reference: the scheduler forms every batch, the rules module carries it out. Also who was never finished."""
    state = State(instance, cost, rules)
    service = Service(policy, state, until)
    steps = list(service.batches())
    stalled = tuple(i for i, done in enumerate(state.done) if not done and i not in service.infeasible)
    return finish(state, Schedule(tuple(b for b, _ in steps)), [r for _, r in steps]), stalled
