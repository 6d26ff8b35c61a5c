"""Checkpoint or recompute: which costs less per interruption, where, and why."""

from __future__ import annotations

from bounds.preemption_bench.claims import (
    CHECKPOINT_POLICIES,
    NOT,
    REPRODUCED,
    UNDECIDED,
    Claim,
    Evidence,
    show,
    untested,
)  # fmt: skip
from bounds.preemption_bench.statistics import interval
from bounds.preemption_bench.tables import winner

POSITION = 2
ORIGINAL = {
    "high_resume_prob": ("checkpoint", 27, 79), "low_resume_prob": ("checkpoint", 36, 55),
    "urgent_prefill_injections": ("checkpoint", 25, 76), "kv_pressure_urgent": ("recompute", 150, 92),
    "long_decode_tail": ("recompute", 322, 61),
}  # fmt: skip
FIGURE = "overhead_per_interrupt_ms"
PAIR = ("oldest_checkpoint", "oldest_recompute")


def claims(evidence: Evidence) -> list[Claim]:
    """Per workload, the rule behind it, and the policy of highest overhead."""
    return [*(_workload(evidence, name) for name in ORIGINAL), _large_state(evidence), _longest_remaining(evidence)]


def _workload(evidence: Evidence, workload: str) -> Claim:
    results = evidence.results
    expected, checkpoint_ms, recompute_ms = ORIGINAL[workload]
    statement = f"{workload}: {expected} is the cheaper mechanism"
    original = f"checkpoint {checkpoint_ms}, recompute {recompute_ms} ms"
    if not results.has(PAIR, [workload]):
        return untested(statement, original)
    checkpoint, recompute = (results.mean(policy, FIGURE, [workload]) for policy in PAIR)
    found = winner(results.difference(*PAIR, FIGURE, [workload]))
    verdict = UNDECIDED if found in (None, "undecided") else REPRODUCED if found == expected else NOT
    ours = f"checkpoint {show(checkpoint)}, recompute {show(recompute)} ms per interruption"
    return Claim(statement, original, ours, verdict, _by_prompt_only(evidence, workload, expected, found))


def _by_prompt_only(evidence: Evidence, workload: str, expected: str, found: str | None) -> str:
    """What the original's formula for recomputing, prompt tokens only, says about the very same interruptions."""
    results = evidence.results
    checkpoint = results.per_seed("oldest_checkpoint", FIGURE, [workload])
    prompts = results.per_seed("oldest_recompute", "prompt_only_per_interrupt_ms", [workload])
    gap = interval(a - b for a, b in zip(checkpoint, prompts, strict=True) if a is not None and b is not None)
    by_formula = winner(gap)
    if found == expected:
        return ""
    cost = show(results.mean("oldest_recompute", "prompt_only_per_interrupt_ms", [workload]))
    text = f"recomputing the prompt only, as the original charges, would cost {cost} ms: {by_formula or 'undecided'}"
    return text + ("; generated tokens must be refilled too" if by_formula == expected else "")


def _large_state(evidence: Evidence) -> Claim:
    statement = "Recompute wins only where the KV state is large against the prefill cost"
    table = evidence.breakeven[evidence.breakeven["cost_model"] == evidence.cost_model].sort_values("kv_tokens")
    winners, formula = list(table["winner"]), list(table["prompt_only_winner"])
    flips = winners[0] == "checkpoint" and winners[-1] == "recompute"
    formula_flips = formula[0] == "checkpoint" and formula[-1] == "recompute"
    smallest, largest = table.iloc[0], table.iloc[-1]
    ours = (f"at {smallest.kv_tokens} KVs checkpoint {smallest.checkpoint_round_trip_ms:.3g}, refill "
            f"{smallest.refill_ms:.3g} ms; at {largest.kv_tokens}: {largest.checkpoint_round_trip_ms:.3g}, "
            f"{largest.refill_ms:.3g} ms")  # fmt: skip
    why = ("both grow with the KVs held, the refill faster; recompute wins where the victim seldom resumes "
           f"(below {table.breakeven_resume_probability.min():.2f}-{table.breakeven_resume_probability.max():.2f})"
           if table.breakeven_resume_probability.notna().all() else "both grow with the KVs held")  # fmt: skip
    others = [str(name) for name, rows in evidence.breakeven.groupby("cost_model", sort=False)
              if (rows["winner"] == "recompute").any() and name != evidence.cost_model]  # fmt: skip
    others.sort()
    if others:
        small = ", ".join(f"{name} up to {_most_recomputed(evidence, name)} KVs" for name in others)
        why += f"; under other cost models recompute wins for small states ({small})"
    if formula_flips:
        why += "; charging the prompt alone makes recompute win for long decodes"
    return Claim(statement, "-", ours, REPRODUCED if flips else NOT, "" if flips else why)


def _most_recomputed(evidence: Evidence, cost_model: str) -> int:
    table = evidence.breakeven[evidence.breakeven["cost_model"] == cost_model]
    return int(table[table["winner"] == "recompute"]["kv_tokens"].max())


def _longest_remaining(evidence: Evidence) -> Claim:
    results, target = evidence.results, "longest_remaining_checkpoint"
    statement = "Interrupting the decode with most remaining work has the highest checkpoint overhead"
    if not results.has(CHECKPOINT_POLICIES):
        return untested(statement, "-")
    # Only workloads in which every checkpoint policy interrupts in every seed can be averaged.
    common = [w for w in results.workloads
              if all(None not in results.per_seed(p, FIGURE, [w]) for p in CHECKPOINT_POLICIES)]  # fmt: skip
    if not common:
        return untested(statement, "-")
    others = [p for p in CHECKPOINT_POLICIES if p != target]
    gaps = [results.difference(target, p, FIGURE, common) for p in others]
    if all(g is not None and g.positive for g in gaps):
        verdict = REPRODUCED
    else:
        verdict = NOT if any(g is not None and g.negative for g in gaps) else UNDECIDED
    ours = "; ".join(f"{p} {show(results.mean(p, FIGURE, common))}" for p in CHECKPOINT_POLICIES)
    why = "much still to come does not mean much held: KVs held are prompt and tokens so far"
    return Claim(statement, "highest", f"{ours} ms", verdict, "" if verdict == REPRODUCED else why)
