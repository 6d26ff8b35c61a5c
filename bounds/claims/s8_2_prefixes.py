"""Prefix sharing: SRF against NRF on one prompt with many answers (section 8.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bounds.claims import DIRECTION, NOT_REPRODUCED, REPRODUCED, Cell, Effort, Row, Verdict, across, grade
from bounds.claims._grid import left_on_table
from bounds.claims._models import fitted, kind, setup
from bounds.lower import QUICK, all_bounds
from bounds.lower._systems import without_prefixes
from sim.clock import ms_from_ticks
from sim.cost import load_cost_model
from sim.engine import simulate
from sim.generate import parse_lengths
from sim.instance import Instance, Request
from sim.metrics import e2e_ms, summary
from sim.replay import Rules

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SECTION = "8.2"
KV_CAPACITY = 100_000
RULES = Rules(allow_empty=True, prefix_sharing=True)
PUBLISHED = {
    "linear-fit/llama3-8b-a100": 0.12,
    "linear-fit/llama3-8b-h100": 0.16,
    "linear/llama3-70b-4xa100": 0.14,
    "linear-fit/llama3-70b-4xh100": 0.17,
}
# SelfConsistency (Wang et al., arXiv:2203.11171) samples up to 40 answers a question; lengths are ours: prompts of few-shot
# examples, long chains of thought.
ANSWERS = 20
PROMPT, OUTPUT = "lognormal:900:300", "lognormal:1000:600"
TAIL = 10
"""Batches of at most so many requests count as the tail of a run."""
PROMPTS = 20
POLICIES = {"NRF": "sglang_nrf", "SRF": "sglang_srf", "NRF, no reserve": "sglang_nrf:ratio_start=0:ratio_floor=0",
            "SRF, no reserve": "sglang_srf:ratio_start=0:ratio_floor=0"}  # fmt: skip


def cells(effort: Effort) -> Sequence[Cell]:
    """Setups and policies; all questions arrive at once."""
    linear = list(PUBLISHED)[:1] if effort == "quick" else list(PUBLISHED)
    seeds = (0,) if effort == "quick" else (0, 1)
    first = (linear[0], fitted(linear[0]))
    runs = [(c, 1.0) for c in (*linear, *map(fitted, linear))] + [(c, 2.0) for c in first]
    return [{"cost_model": c, "prompts": PROMPTS, "policy": p, "seed": s, "kv_capacity": KV_CAPACITY,
             "output_scale": o}
            for c, o in runs for p in POLICIES for s in seeds]  # fmt: skip


def workload(prompts: int, seed: int, kv_capacity: int, cost_model: str, output_scale: float = 1.0) -> Instance:
    """SelfConsistency-like: each prompt is answered `ANSWERS` times."""
    rng = np.random.default_rng(seed)
    inputs = parse_lengths(PROMPT, "prompt").draw(prompts, rng)
    outputs = parse_lengths(OUTPUT, "output").draw(prompts * ANSWERS, rng)
    requests = [
        Request(
            int(inputs[i // ANSWERS]),
            max(1, round(int(o) * output_scale)),
            prefix=f"p{i // ANSWERS}",
            prefix_tokens=max(1, int(inputs[i // ANSWERS]) - 1),
        )
        for i, o in enumerate(outputs)
    ]
    return Instance(tuple(requests), kv_capacity, cost_model=cost_model, name="SelfConsistency-like")


def measure(cost_model: str, prompts: int, policy: str, seed: int, kv_capacity: int, output_scale: float) -> list[Row]:
    """One run, with a lower bound that holds with shared prefixes too."""
    instance = workload(prompts, seed, kv_capacity, cost_model, output_scale)
    run = simulate(instance, POLICIES[policy], rules=RULES)
    s = summary(run)
    lower = all_bounds(without_prefixes(instance), load_cost_model(cost_model), only=QUICK)[0].value_ms
    tail = sum(r.end_ticks - r.start_ticks for r in run.replay.records if len(r.entries) <= TAIL)
    return [{
        "cost_model": cost_model, "policy": policy, "seed": seed, "output_scale": output_scale,
        "requests": len(instance.requests), "makespan_ms": s.makespan_ms, "e2e_ms": float(e2e_ms(run.replay).mean()),
        "preemptions": s.preemptions, "refilled_tokens": s.refilled_tokens,
        "needed_tokens": sum(r.peak_kv_tokens for r in instance.requests), "tail_ms": ms_from_ticks(tail),
        "lower_bound_ms": lower, "stalled": len(run.stalled),
    }]  # fmt: skip


def gains(
    rows: Sequence[Row], cost_model: str, suffix: str, output_scale: float = 1.0, key: str = "makespan_ms"
) -> list[float]:
    """NRF over SRF minus 1, per seed."""
    at = {(r["policy"], r["seed"]): r for r in rows
          if r["cost_model"] == cost_model and r["output_scale"] == output_scale}  # fmt: skip
    seeds = sorted({seed for _, seed in at})
    return [at[f"NRF{suffix}", s][key] / at[f"SRF{suffix}", s][key] - 1 for s in seeds]


def judge(rows: Sequence[Row]) -> list[Verdict]:
    """Gain of SRF with SGLang's own reserve, and without it."""
    return across(rows, _judge_kind, kind)


def _judge_kind(rows: list[Row]) -> list[Verdict]:
    published = {name.rsplit("/", 1)[-1]: gain for name, gain in PUBLISHED.items()}
    machines = {r["cost_model"]: setup(r) for r in rows}
    own = {c: float(np.mean(gains(rows, c, ""))) for c in machines}
    bare = {c: float(np.mean(gains(rows, c, ", no reserve"))) for c in machines}
    early = {suffix: float(np.mean([g for c in machines for g in gains(rows, c, suffix, key="e2e_ms")]))
             for suffix in ("", ", no reserve")}  # fmt: skip
    tail = {p: float(np.mean([r["tail_ms"] / r["makespan_ms"] for r in rows if r["policy"] == p])) for p in POLICIES}
    longer = next(iter(machines))
    twice = [float(np.mean(gains(rows, longer, suffix, 2.0))) for suffix in ("", ", no reserve")]
    wins = sum(v > 0.005 for v in (*own.values(), *bare.values()))
    fit = [grade(max(own[c], bare[c]), published[name], tolerance=0.3) for c, name in machines.items()]
    verdict = REPRODUCED if set(fit) == {REPRODUCED} else DIRECTION if wins >= len(machines) else NOT_REPRODUCED
    preempted = {p: int(np.mean([r["preemptions"] for r in rows if r["policy"] == p])) for p in POLICIES}
    refilled = {
        p: np.mean([r["refilled_tokens"] / r["needed_tokens"] for r in rows if r["policy"] == p]) for p in POLICIES
    }
    return [
        Verdict(
            "With prefix sharing SRF is 12 / 16 / 14 / 17 % faster than NRF", SECTION,
            ", ".join(f"{name} {published[name]:.0%}" for name in machines.values()),
            "; ".join(f"{machines[c]}: with SGLang's reserve {own[c]:+.1%}, without {bare[c]:+.1%}" for c in machines)
            + f"; mean end-to-end latency {early['']:+.1%} and {early[', no reserve']:+.1%}", verdict,
            f"SelfConsistency-like, {ANSWERS} answers a prompt, lengths are ours. On average, preemptions, tokens refilled by "
            f"them as a share of those needed, and share of the makespan with at most {TAIL} requests in a batch: "
            + ", ".join(f"{p} {n}, {refilled[p]:.0%}, {tail[p]:.0%}" for p, n in preempted.items()) + ". Both rules refill "
            "alike; what differs is the tail, when a few of the longest answers run alone, and it hangs on whether one of "
            "them was thrown out or let in late. So the sign changes with the workload: with outputs twice as long it is "
            f"{twice[0]:+.1%} and {twice[1]:+.1%} on {machines[longer]}.",
            "Many answers to one prompt share its KVs; only what each answer added is thrown out. Throwing out the shortest "
            "is no sure gain here: a batch of work that starts at once ends with its longest answers, and those must not "
            "start late.",
            left_on_table(rows, by=("cost_model", "seed", "output_scale"), name="policy") + " (bounds take every shared prefix as free)",
        )
    ]  # fmt: skip


def figures(rows: Sequence[Row]) -> Iterator[tuple[str, Figure]]:
    """Makespan by policy, a group per setup."""
    import matplotlib.pyplot as plt

    models = list(dict.fromkeys(r["cost_model"] for r in rows if kind(r) == "linear"))
    figure, ax = plt.subplots(figsize=(8, 3.6), layout="constrained")
    colours = dict(zip(POLICIES, ("#56B4E9", "#0072B2", "#E69F00", "#D55E00"), strict=True))
    for shift, (policy, colour) in enumerate(colours.items()):
        values = [np.mean([r["makespan_ms"] for r in rows if (r["cost_model"], r["policy"], r["output_scale"]) == (c, policy, 1.0)]) / 1000
                  for c in models]  # fmt: skip
        ax.bar(np.arange(len(models)) + 0.2 * (shift - 1.5), values, 0.2, color=colour, label=policy)
    ax.set_xticks(range(len(models)), models, fontsize=8)
    ax.set_ylabel("makespan (s)")
    ax.legend(fontsize=8)
    yield "prefixes", figure
