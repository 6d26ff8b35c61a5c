"""Runs of Kim et al.'s simulator: totals, makespan and, where recorded, every batch.

Compared are batches, preemptions, evicted KVs and tokens, exactly, and the makespan to 1 ns a batch. Their clock
charges decode attention for n times the floored mean of (KVs + 1) over the n decodes, so the run is timed in that form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from sim.clock import NS_PER_S, TICKS_PER_NS
from sim.conformance import Difference, Outcome, Record
from sim.cost.model import CostModel, Features, load_cost_model
from sim.cost.runs import RunTimer
from sim.engine import simulate
from sim.errors import InputError
from sim.instance import MAX_REQUESTS, Instance, Request
from sim.replay import BatchRecord, State
from sim.run_log import run_log
from sim.schedule import Batch
from sim.schedulers import make_scheduler

if TYPE_CHECKING:
    from sim.scheduling import Scheduler

COST_MODELS = {
    "meta-llama/Llama-2-7b-hf": "linear/llama2-7b-a100",
    "meta-llama/Meta-Llama-3-70B": "linear/llama3-70b-4xa100",
}


def their_features(features: Features) -> Features:
    """Features of a batch with n decodes charged for n x floor(D / n + 1) reads."""
    n = features.n_decode
    return features._replace(decode_reads=n * (features.decode_reads // n + 1) if n else 0)


@dataclass(frozen=True, slots=True)
class TheirClock(CostModel):
    """A cost model with the decode term of their simulator."""

    def batch_ticks(self, features: Features) -> int:
        """Time of a batch."""
        return CostModel.batch_ticks(self, their_features(features))


def record_name(record: Record) -> str:
    """Group, scheduler and workload."""
    data = record.data
    lengths = f"{data['N']}x{data['I']}-{data['O']}" if "requests" not in data else f"{len(data['requests'])}-requests"
    return f"{data.get('group', 'run')}-{data['config']}-{lengths}-m{data['M']}"


def scheduler_name(data: Mapping[str, Any]) -> str:
    """The scheduler of a record, with its token budget where one is recorded."""
    config = data.get("scheduler_config", {})
    budget = config.get("chunk_size") or config.get("max_tokens_in_batch")
    return f"{data['config']}:token_budget={budget}" if budget else str(data["config"])


def read_instance(data: Mapping[str, Any]) -> Instance:
    """The record's requests and limits."""
    if data.get("N", 1) > MAX_REQUESTS:
        raise InputError(f"at most {MAX_REQUESTS:,} requests", field="N", value=data["N"])
    rows = data["requests"] if "requests" in data else [[0, data["I"], data["O"]]] * data["N"]
    requests = tuple(Request(i, o, round(arrival_s * NS_PER_S)) for arrival_s, i, o in rows)
    config = data.get("scheduler_config", {})
    budget = config.get("chunk_size") or config.get("max_tokens_in_batch") or 4096
    llm = data["model"]
    if llm not in COST_MODELS:
        raise InputError(f"must be one of {', '.join(COST_MODELS)}", field="model", value=llm)
    return Instance(requests, data["M"], budget, cost_model=COST_MODELS[llm])


class _Recorder:
    """Passes everything on to a scheduler and notes each batch as the reference does."""

    def __init__(self, policy: Scheduler) -> None:
        self.policy: Any = policy
        self.batches: list[dict[str, Any]] = []

    def add(self, i: int, state: State) -> None:
        self.policy.add(i, state)

    def update(self, record: BatchRecord, state: State) -> None:
        self.policy.update(record, state)

    def form_batch(self, state: State) -> Batch | None:
        held = dict(self.policy.memory.held)
        batch: Batch | None = self.policy.form_batch(state)
        if batch is not None:
            self.batches.append({
                "reqs": [[i, c, state.kv[i] + state.ready[i], int(not state.ready[i])] for i, c in batch.process],
                "evicted": [[i, state.kv[i] + state.ready[i], held[i], int(not state.ready[i])]
                            for i in batch.preempt],
                "alloc": self.policy.memory.used_blocks,
            })  # fmt: skip
        return batch


def check(record: Record, scheduler: str | None) -> Outcome:
    """Run the case and compare; a schedule, where recorded, before the totals."""
    data = record.data
    name = scheduler or scheduler_name(data)
    short_name = name.split(":")[0]
    if data.get("status", "ok") != "ok":
        return Outcome(record_name(record), short_name, skipped=f"reference run ended with {data['status']}")
    instance = read_instance(data)
    linear = load_cost_model(instance.cost_model)
    clock = TheirClock(*(getattr(linear, f.name) for f in fields(CostModel)))
    policy: Any = make_scheduler(name, instance)
    recorder = _Recorder(policy) if "schedule" in data else None
    # Offline the clock does not change the schedule, so that the event engine can make it, in runs of equal batches; in
    # a run each next batch reads one KV more per decode, which their rounding leaves as it is.
    replay = simulate(instance, recorder or policy, cost=linear if instance.offline else clock).replay
    if recorder is not None:
        for j, (got, expected) in enumerate(zip(recorder.batches, data["schedule"], strict=False)):
            for key in ("reqs", "evicted", "alloc"):
                if got[key] != expected[key]:
                    difference = Difference(f"batch {j}", key, expected[key], got[key])
                    return Outcome(record_name(record), short_name, difference)
    log = run_log(replay)
    totals = {
        "n_batches": len(replay.schedule),
        "n_preemptions": sum(replay.preemptions),
        "kv_evicted": sum(kv for r in log.records for _, kv in r.preempted),
        "sum_c": sum(r.features.tokens * r.repeat for r in log.records),
    }
    for key, value in totals.items():
        if value != data[key]:
            return Outcome(record_name(record), short_name, Difference("totals", key, data[key], value))
    expected_s = data["makespan_s"] if data.get("add_zero") else data["linear_only"]["makespan_s"]
    ticks = replay.makespan_ticks
    if instance.offline:
        timer = RunTimer(linear)
        ticks = sum(timer.total(their_features(r.features), r.step, r.repeat) for r in log.records)
    got_s = ticks / (TICKS_PER_NS * NS_PER_S)
    late: Difference | None = None
    if not abs(got_s - expected_s) <= 1e-9 * len(replay.schedule):
        late = Difference("totals", "makespan_s", expected_s, got_s)
    return Outcome(record_name(record), short_name, late)
