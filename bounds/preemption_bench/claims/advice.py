"""The original's five recommendations, each tested, with what our runs would recommend instead."""

from __future__ import annotations

from dataclasses import dataclass

from bounds.preemption_bench.claims import NOT, REPRODUCED, UNDECIDED, Claim, Evidence, show, untested
from bounds.preemption_bench.claims.fairness import less_fair
from bounds.preemption_bench.statistics import Interval
from bounds.preemption_bench.tables import pooled_ratio

POSITION = 4
OVERHEAD, VALUE = "overhead_ms", "value_score"


@dataclass(frozen=True, slots=True)
class Advice:
    """A recommendation: in these workloads, prefer one policy to another by a figure; less of it is better, or more."""

    text: str
    workloads: tuple[str, ...] | None
    preferred: str
    over: str
    figure: str
    more_is_better: bool = False


ADVICE = (
    Advice("Use oldest_checkpoint as the default where victims resume", ("high_resume_prob",), "oldest_checkpoint",
           "oldest_recompute", OVERHEAD),
    Advice("Switch to oldest_recompute where outputs are heavy-tailed", ("long_decode_tail",), "oldest_recompute",
           "oldest_checkpoint", OVERHEAD),
    Advice("Use kv_pressure_checkpoint for selective preemption under KV constraints", ("kv_pressure_urgent",),
           "kv_pressure_checkpoint", "oldest_checkpoint", OVERHEAD),
    Advice("Avoid longest_remaining in any scenario", None, "oldest_checkpoint", "longest_remaining_checkpoint", VALUE,
           True),
)  # fmt: skip


def claims(evidence: Evidence) -> list[Claim]:
    """Four comparisons, and the oracle's fairness."""
    return [*(_compared(evidence, advice) for advice in ADVICE), _oracle(evidence)]


def _compared(evidence: Evidence, advice: Advice) -> Claim:
    results = evidence.results
    original = f"{advice.preferred} over {advice.over}"
    if not results.has([advice.preferred, advice.over], advice.workloads or ()):
        return untested(advice.text, original)
    workloads = None if advice.workloads is None else list(advice.workloads)
    gap = results.difference(advice.preferred, advice.over, advice.figure, workloads)
    better, worse = _signs(gap, advice.more_is_better)
    verdict = REPRODUCED if better else NOT if worse else UNDECIDED
    left, right = (results.mean(p, advice.figure, workloads) for p in (advice.preferred, advice.over))
    word = "value score" if advice.figure == VALUE else "overhead ms a run"
    ours = f"{word}: {advice.preferred} {show(left)}, {advice.over} {show(right)}"
    return Claim(advice.text, original, ours, verdict, f"best value there: {_best_value(evidence, workloads)}")


def _signs(gap: Interval | None, more_is_better: bool) -> tuple[bool, bool]:
    if gap is None:
        return False, False
    return (gap.positive, gap.negative) if more_is_better else (gap.negative, gap.positive)


def _best_value(evidence: Evidence, workloads: list[str] | None) -> str:
    results = evidence.results
    means = {p: m.mean for p in results.policies if (m := results.mean(p, VALUE, workloads)) is not None}
    best = max(means, key=lambda p: means[p])
    return f"{best} ({means[best]:.3f})"


def _oracle(evidence: Evidence) -> Claim:
    results = evidence.results
    text, original = "Avoid oracle-style preemption unless fairness is not a concern", "ratio 17.69 against 1.00"
    if not results.has(["oracle_preemption", "oldest_checkpoint"]):
        return untested(text, original)
    verdict = less_fair(results, "oracle_preemption")
    ours = (f"ratio {show(pooled_ratio(results, 'oracle_preemption'))} against "
            f"{show(pooled_ratio(results, 'oldest_checkpoint'))}")  # fmt: skip
    value = results.difference("oracle_preemption", "oldest_checkpoint", VALUE)
    return Claim(text, original, ours, verdict, f"value score, oracle minus oldest_checkpoint: {show(value)}")
