"""Who meets what they were promised: classes, fairness ratios, and whether preemption helps everyone."""

from __future__ import annotations

from bounds.preemption_bench.claims import (
    ALWAYS_PREEMPT,
    DIRECTION,
    NOT,
    REPRODUCED,
    UNDECIDED,
    Claim,
    Evidence,
    show,
    untested,
)  # fmt: skip
from bounds.preemption_bench.statistics import Interval, interval
from bounds.preemption_bench.tables import CLASS_NAMES, EQUITABLE_RATIO, Results, pooled_ratio, ratios_per_seed

POSITION = 3
ORIGINAL = {
    "oldest_checkpoint": (1.00, 1.00, 1.00), "oldest_recompute": (1.00, 1.00, 1.00),
    "best_effort_first_checkpoint": (1.00, 1.00, 1.00), "kv_pressure_checkpoint": (1.00, 1.00, 1.00),
    "oracle_preemption": (1.00, 0.34, 17.69), "no_preemption": (0.84, 0.17, 16.73),
}  # fmt: skip
"""Urgent SLO, standard SLO, fairness ratio."""
FAIR_POLICY = "oldest_checkpoint"
NEAR = 0.05
"""SLO shares this close to the original's count as the same figure."""


def claims(evidence: Evidence) -> list[Claim]:
    """One row per policy of the original's table, then what preemption does to all classes."""
    rows = [_policy(evidence, policy) for policy in ORIGINAL]
    return [*rows, _all_classes(evidence, "ttft_attained", "first token in time"),
            _all_classes(evidence, "slo_attained", "first token and pace in time, completed")]  # fmt: skip


def _policy(evidence: Evidence, policy: str) -> Claim:
    results = evidence.results
    urgent, standard, ratio = ORIGINAL[policy]
    fair = ratio <= EQUITABLE_RATIO
    statement = f"{policy} is {'equitable' if fair else 'not equitable'}"
    original = f"urgent {urgent:.2f}, standard {standard:.2f}, ratio {ratio:.2f}"
    if not results.has([policy, FAIR_POLICY]):
        return untested(statement, original)
    shares = [results.mean(policy, f"{name}_ttft_attained") for name in CLASS_NAMES]
    found = pooled_ratio(results, policy)
    ours = ", ".join(f"{name} {show(s)}" for name, s in zip(CLASS_NAMES, shares, strict=True))
    ours += f", ratio {show(found)}"
    verdict = _fair(found) if fair else less_fair(results, policy)
    figures = zip(shares, (urgent, standard), strict=False)
    if verdict == REPRODUCED and not all(s is not None and abs(s.mean - o) <= NEAR for s, o in figures):
        verdict = DIRECTION
    return Claim(statement, original, ours, verdict, _why(policy, verdict))


def _fair(found: Interval | None) -> str:
    """Whether the ratio is near 1, by an interval on one side of the mark."""
    if found is None or found.low is None or found.high is None:
        return UNDECIDED
    return REPRODUCED if found.high <= EQUITABLE_RATIO else NOT if found.low > EQUITABLE_RATIO else UNDECIDED


def less_fair(results: Results, policy: str) -> str:
    """Whether a policy is less fair than oldest_checkpoint, which the original calls equitable, on the same requests.

    Not reproduced if the ratios differ by less than the mark allows (an equivalence: the whole interval within it).
    """
    pairs = zip(ratios_per_seed(results, policy), ratios_per_seed(results, FAIR_POLICY), strict=True)
    gap = interval(a - b for a, b in pairs if a is not None and b is not None)
    if gap is None or gap.low is None or gap.high is None:
        return UNDECIDED
    if gap.low > EQUITABLE_RATIO - 1:
        return REPRODUCED
    return NOT if gap.high < EQUITABLE_RATIO - 1 else UNDECIDED


def _why(policy: str, verdict: str) -> str:
    if verdict == REPRODUCED:
        return ""
    if policy == "oracle_preemption":
        return "our oracle weighs the victims' loss against the urgent gain; the original's rule is not published"
    if policy == "no_preemption":
        return "the queue serves urgent, then standard: only best effort is starved, by load and not by preemption"
    return "best effort waits behind everyone else at a load of 1.2, whatever the policy"


def _all_classes(evidence: Evidence, figure: str, words: str) -> Claim:
    results = evidence.results
    statement = f"Any preemption benefits all classes ({words})"
    if not results.has([*ALWAYS_PREEMPT, "no_preemption"]):
        return untested(statement, "all classes")
    gains = {(p, name): results.difference(p, "no_preemption", f"{name}_{figure}")
             for p in ALWAYS_PREEMPT for name in CLASS_NAMES}  # fmt: skip
    worse = [f"{p}: {name} {show(g)}" for (p, name), g in gains.items() if g is not None and g.negative]
    better = sum(g is not None and g.positive for g in gains.values())
    none_lower = all(g is not None and g.mean >= 0 for g in gains.values())
    verdict = NOT if worse else REPRODUCED if better == len(gains) else DIRECTION if none_lower else UNDECIDED
    ours = f"{better} of {len(gains)} policy-class pairs better, {len(worse)} worse"
    ours += f" ({'; '.join(worse[:2])})" if worse else ""
    why = {
        "ttft_attained": "interrupting adds work; queues shorten only by the requests that are abandoned",
        "slo_attained": "whoever is interrupted is slowed or abandoned: urgent requests gain what others lose",
    }[figure]
    return Claim(statement, "all classes", ours, verdict, "" if verdict == REPRODUCED else why)
