"""The original's five recommendations, each tested, with what our runs would recommend instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bounds.preemption_bench.claims import NOT, REPRODUCED, UNDECIDED, Claim, Evidence, show, untested
from bounds.preemption_bench.claims.fairness import less_fair
from bounds.preemption_bench.statistics import Interval, interval
from bounds.preemption_bench.tables import pooled_ratio, ratios_per_seed

if TYPE_CHECKING:
    import pandas as pd

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


FAIRNESS = "fairness ratio"
ORACLE = Advice("Avoid oracle-style preemption unless fairness is not a concern", None, "oldest_checkpoint",
                "oracle_preemption", FAIRNESS)  # fmt: skip


def claims(evidence: Evidence) -> list[Claim]:
    """Four comparisons, and the oracle's fairness."""
    return [*(_compared(evidence, advice) for advice in ADVICE), _oracle(evidence)]


def _runs(evidence: Evidence, advice: Advice) -> bool:
    return evidence.results.has([advice.preferred, advice.over], advice.workloads or ())


def _per_seed(evidence: Evidence, advice: Advice, policy: str) -> list[float | None]:
    workloads = None if advice.workloads is None else list(advice.workloads)
    if advice.figure == FAIRNESS:
        return ratios_per_seed(evidence.results, policy, workloads)
    return evidence.results.per_seed(policy, advice.figure, workloads)


def _advantage(evidence: Evidence, advice: Advice) -> Interval | None:
    """What the preferred policy gains, seed by seed; positive if the recommendation holds."""
    pairs = zip(_per_seed(evidence, advice, advice.preferred), _per_seed(evidence, advice, advice.over), strict=True)
    sign = 1 if advice.more_is_better else -1
    return interval(sign * (a - b) for a, b in pairs if a is not None and b is not None)


def _compared(evidence: Evidence, advice: Advice) -> Claim:
    original = f"{advice.preferred} over {advice.over}"
    if not _runs(evidence, advice):
        return untested(advice.text, original)
    gain = _advantage(evidence, advice)
    verdict = UNDECIDED if gain is None else REPRODUCED if gain.positive else NOT if gain.negative else UNDECIDED
    left, right = (show(interval(_per_seed(evidence, advice, p))) for p in (advice.preferred, advice.over))
    same = gain is not None and gain.low == gain.high == 0
    verdict = NOT if same else verdict
    word = "value score" if advice.figure == VALUE else "overhead ms a run"
    ours = f"{word}: {advice.preferred} {left}, {advice.over} {right}"
    why = "the same decisions in every seed; " if same else ""
    return Claim(advice.text, original, ours, verdict, f"{why}best value there: {_best_value(evidence, advice)}")


def _best_value(evidence: Evidence, advice: Advice) -> str:
    workloads = None if advice.workloads is None else list(advice.workloads)
    results = evidence.results
    means = {p: m.mean for p in results.policies if (m := results.mean(p, VALUE, workloads)) is not None}
    best = max(means, key=lambda p: means[p])
    return f"{best} ({means[best]:.3f})"


def _oracle(evidence: Evidence) -> Claim:
    results, original = evidence.results, "ratio 17.69 against 1.00"
    if not _runs(evidence, ORACLE):
        return untested(ORACLE.text, original)
    ours = (f"ratio {show(pooled_ratio(results, ORACLE.over))} against "
            f"{show(pooled_ratio(results, ORACLE.preferred))}")  # fmt: skip
    value = results.difference(ORACLE.over, ORACLE.preferred, VALUE)
    return Claim(ORACLE.text, original, ours, less_fair(results, ORACLE.over),
                 f"value score, oracle minus oldest_checkpoint: {show(value)}")  # fmt: skip


def advice_table(evidence: Evidence) -> pd.DataFrame:
    """operational_recommendations.csv: the figures behind each recommendation, its verdict, and the best policy."""
    import pandas as pd

    rows = []
    for advice in (*ADVICE, ORACLE):
        if not _runs(evidence, advice):
            continue
        claim = _oracle(evidence) if advice is ORACLE else _compared(evidence, advice)
        gain = _advantage(evidence, advice)
        left, right = (interval(_per_seed(evidence, advice, p)) for p in (advice.preferred, advice.over))
        rows.append({
            "recommendation": advice.text, "workloads": ", ".join(advice.workloads or ("all",)),
            "figure": advice.figure, "preferred": advice.preferred, "over": advice.over,
            "preferred_figure": None if left is None else left.mean,
            "over_figure": None if right is None else right.mean,
            "advantage": None if gain is None else gain.mean, "advantage_low": None if gain is None else gain.low,
            "advantage_high": None if gain is None else gain.high, "verdict": claim.verdict,
            "best_value": _best_value(evidence, advice),
        })  # fmt: skip
    return pd.DataFrame(rows)
