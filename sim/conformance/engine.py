"""Runs of vLLM's scheduler classes: every scheduling call is repeated and compared.

A request joins just before the call its ``arrival_step`` names. Compared are, in order: what is scheduled (request,
tokens, computed before), who is preempted, blocks in use, who finishes, and both queues afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sim.clock import TICKS_PER_NS
from sim.conformance import Difference, Outcome, Record
from sim.cost.model import load_cost_model
from sim.errors import InputError
from sim.instance import Instance, Request
from sim.replay import BatchRecord, Rules, State, SwapLink
from sim.schedule import Batch
from sim.schedulers import make_scheduler

if TYPE_CHECKING:
    from sim.schedulers._vllm_v0 import VllmV0
    from sim.schedulers._vllm_v1 import VllmV1

COMPARED = ("scheduled", "preempted", "blocks_used", "finished", "running", "waiting")


def record_name(record: Record) -> str:
    """The record's own name."""
    return str(record.data["name"])


def scheduler_name(data: Mapping[str, Any]) -> str:
    """The scheduler of a record, with its settings as parameters; the nearest version we have."""
    config, built = data["config"], data.get("scheduler_config", {})
    if data["engine"] not in ("v0", "v1"):
        raise InputError("must be v0 or v1", field="engine", value=data["engine"])
    if data["engine"] == "v0":
        name = "vllm-v0-chunked" if config["chunked_prefill"] else "vllm-v0"
        if config.get("preemption_mode") == "swap":
            name += "_swap"
        return f"{name}:policy={config['policy']}:watermark={built.get('watermark', 0.01)}"
    parameters = {"policy": config["policy"], "enable_chunked_prefill": config["chunked_prefill"]}
    parameters |= {key: config[key] for key in ("long_prefill_token_threshold", "reserve_full_isl", "watermark")
                   if config.get(key) is not None}  # fmt: skip
    minor = int(str(data["vllm_version"]).split(".")[1])
    if minor <= 11:
        name, parameters["keep_victim_entry"] = "vllm-v1-0.11", True
    else:
        name = "vllm-v1-0.33"
    return ":".join([name, *(f"{key}={value}" for key, value in parameters.items())])


def read_instance(data: Mapping[str, Any]) -> Instance:
    """The record's requests and limits; arrivals are only an order, 1 ns apart."""
    config = data["config"]
    order = sorted(range(len(data["requests"])), key=lambda i: (data["requests"][i]["arrival_step"], i))
    rank = {i: position for position, i in enumerate(order)}
    requests = tuple(Request(r["I"], r["O"], rank[i], r.get("priority", 0), str(r["id"]))
                     for i, r in enumerate(data["requests"]))  # fmt: skip
    return Instance(requests, config["kv_blocks"] * config["block_size"], config["max_num_batched_tokens"],
                    config["max_num_seqs"], config["block_size"])  # fmt: skip


class _EngineState(State):
    """The rules, except that a victim may keep its entry, as 0.11.0 leaves it there with priorities.

    The request then counts as processed although its blocks are gone: it gets its token, and afterwards the engine
    believes the entry's tokens to be computed.
    """

    def apply(self, batch: Batch) -> BatchRecord:
        victims = set(batch.preempt)
        kept = [(i, c) for i, c in batch.process if i in victims]
        if not kept:
            return super().apply(batch)
        for i, c in kept:
            self.generated[i] += int(self.remaining_fill(i) == c)
        record = super().apply(Batch(tuple(p for p in batch.process if p[0] not in victims), batch.preempt))
        for i, c in kept:
            self.kv[i] = c
        return record


def check(record: Record, scheduler: str | None) -> Outcome:
    """Repeat the run until it differs or ends."""
    data = record.data
    name = scheduler or scheduler_name(data)
    instance = read_instance(data)
    rules = Rules(allow_empty=True, swap=SwapLink(0, TICKS_PER_NS))
    state = _EngineState(instance, load_cost_model(instance.cost_model), rules)
    policy = make_scheduler(name, instance)
    arrivals = sorted(range(len(instance.requests)), key=lambda i: instance.requests[i].arrival_ns)
    short_name = name.split(":")[0]
    for expected in data["steps"]:
        joined = []
        while arrivals and data["requests"][arrivals[0]]["arrival_step"] <= expected["step"]:
            joined.append(arrivals.pop(0))
            policy.add(joined[-1], state)
        got = _step(policy, state, instance.ids) | {"arrivals": [instance.ids[i] for i in joined]}
        for key in ("arrivals", *COMPARED):
            if got[key] != expected[key]:
                difference = Difference(f"step {expected['step']}", key, expected[key], got[key])
                return Outcome(record_name(record), short_name, difference)
    status = _status(policy, state, bool(arrivals))
    if status != data["summary"]["status"]:
        difference = Difference("end", "status", data["summary"]["status"], status)
        return Outcome(record_name(record), short_name, difference)
    infeasible = [instance.ids[i] for i in instance.infeasible()]
    note = f"{status}; can never fit: request {', '.join(infeasible)}" if infeasible else None
    return Outcome(record_name(record), short_name, note=note)


def _step(policy: Any, state: State, ids: Sequence[str]) -> dict[str, Any]:
    """One scheduling call and what the reference says about it."""
    state.release_completed()
    computed = list(state.kv)
    host = list(state.host_kv)
    batch = policy.form_batch(state) or Batch(())
    step: dict[str, Any] = {
        "scheduled": [[ids[i], c, computed[i] or host[i]] for i, c in batch.process],
        "preempted": [ids[i] for i in (*batch.preempt, *batch.swap_out)],
        "blocks_used": policy.memory.used_blocks,
    }
    record = state.apply(batch)
    policy.update(record, state)
    step["finished"] = [ids[i] for i in record.completed]
    return step | {"running": [ids[i] for i in policy.running], "waiting": [ids[i] for i in policy.waiting]}


def _status(policy: VllmV0 | VllmV1 | Any, state: State, more_arrivals: bool) -> str:
    """Whether the run is over, goes on, or can never go on."""
    left = state.unfinished - len(getattr(policy, "ignored", ()))
    if not left:
        return "completed"
    return "running" if more_arrivals or policy.form_batch(state) is not None else "stalled"
