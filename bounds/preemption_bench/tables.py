"""Tables from the rows of all cases: means over seeds with 95 % confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bounds.preemption_bench.statistics import Interval, interval
from sim.interrupts import constants
from sim.interrupts.policy import load_policy

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[str, Any]

CLASS_NAMES = tuple(service.name for service in constants.CLASSES)
EQUITABLE_RATIO = 1.25
"""Ratios up to this count as equitable: the four-fifths rule (the original says "near 1")."""

_SUMMARY = (
    "urgent_ttft_p95_ms", "urgent_ttft_mean_ms", "urgent_ttft_max_ms", "standard_ttft_p95_ms",
    "best_effort_ttft_p95_ms", *(f"{name}_ttft_attained" for name in CLASS_NAMES),
    *(f"{name}_slo_attained" for name in CLASS_NAMES), "interrupts", "abandoned", "checkpoint_ms", "recompute_ms",
    "overhead_ms", "overhead_per_interrupt_ms", "prompt_only_per_interrupt_ms", "overhead_share", "victim_kv_tokens",
    "value_score", "makespan_ms", "urgent_ttft_p95_floor_ms", "urgent_ttft_max_floor_ms",
)  # fmt: skip


class Results:
    """Rows of all cases, asked by workload, policy and figure."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = list(rows)
        self.workloads = list(dict.fromkeys(row["workload"] for row in rows))
        self.policies = list(dict.fromkeys(row["policy"] for row in rows))
        self.seeds = sorted({row["seed"] for row in rows})
        self._by_case = {(row["workload"], row["policy"], row["seed"]): row for row in rows}

    def has(self, policies: Iterable[str] = (), workloads: Iterable[str] = ()) -> bool:
        """Whether all of these were run."""
        return set(policies) <= set(self.policies) and set(workloads) <= set(self.workloads)

    def per_seed(self, policy: str, figure: str | Callable[[Row], float | None],
                 workloads: Sequence[str] | None = None) -> list[float | None]:  # fmt: skip
        """One value per seed: the figure's mean over workloads; None where one of them has no such figure."""
        values: list[float | None] = []
        for seed in self.seeds:
            rows = [self._by_case[w, policy, seed] for w in workloads or self.workloads]
            figures = [row[figure] if isinstance(figure, str) else figure(row) for row in rows]
            known = [f for f in figures if f is not None]
            values.append(sum(known) / len(known) if len(known) == len(figures) else None)
        return values

    def mean(self, policy: str, figure: str | Callable[[Row], float | None],
             workloads: Sequence[str] | None = None) -> Interval | None:  # fmt: skip
        """Interval of `per_seed`."""
        return interval(self.per_seed(policy, figure, workloads))

    def difference(self, left: str, right: str, figure: str | Callable[[Row], float | None],
                   workloads: Sequence[str] | None = None) -> Interval | None:  # fmt: skip
        """Interval of left minus right, seed by seed: both saw the same requests."""
        pairs = zip(self.per_seed(left, figure, workloads), self.per_seed(right, figure, workloads), strict=True)
        return interval(a - b for a, b in pairs if a is not None and b is not None)


def summary_table(results: Results) -> pd.DataFrame:
    """summary.csv: one row per workload and policy; each figure with its interval's ends as ``_low`` and ``_high``."""
    import pandas as pd

    table = []
    for workload in results.workloads:
        for policy in results.policies:
            row: dict[str, Any] = {"workload": workload, "policy": policy, "kind": load_policy(policy).kind,
                                   "mechanism": load_policy(policy).mechanism, "seeds": len(results.seeds)}  # fmt: skip
            for figure in _SUMMARY:
                row |= _columns(figure, results.mean(policy, figure, [workload]))
            table.append(row)
    return pd.DataFrame(table)


def _columns(name: str, found: Interval | None) -> dict[str, float | None]:
    if found is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: found.mean, f"{name}_low": found.low, f"{name}_high": found.high}


def fairness_table(results: Results) -> pd.DataFrame:
    """fairness_analysis.csv: per workload, policy and class, the share that met its limits."""
    import pandas as pd

    table = []
    for workload in results.workloads:
        for policy in results.policies:
            for name in CLASS_NAMES:
                row: dict[str, Any] = {"workload": workload, "policy": policy, "class": name}
                for figure in ("ttft_attained", "slo_attained", "ttft_p95_ms", "abandoned"):
                    row |= _columns(figure, results.mean(policy, f"{name}_{figure}", [workload]))
                table.append(row)
    return pd.DataFrame(table)


def pooled_ratio(results: Results, policy: str, workloads: Sequence[str] | None = None,
                 figure: str = "ttft_attained") -> Interval | None:  # fmt: skip
    """Interval of `ratios_per_seed`."""
    return interval(ratios_per_seed(results, policy, workloads, figure))


def ratios_per_seed(results: Results, policy: str, workloads: Sequence[str] | None = None,
                    figure: str = "ttft_attained") -> list[float | None]:  # fmt: skip
    """Best class's attainment over the worst's, after averaging each over workloads; None where a class met nothing."""
    shares = [results.per_seed(policy, f"{name}_{figure}", workloads) for name in CLASS_NAMES]
    ratios: list[float | None] = []
    for seed in zip(*shares, strict=True):
        known = [share for share in seed if share is not None]
        ratios.append(max(known) / min(known) if len(known) == len(CLASS_NAMES) and min(known) > 0 else None)
    return ratios


def fairness_summary(results: Results) -> pd.DataFrame:
    """fairness_summary.csv: per policy over all workloads; ratio of the best class's attainment to the worst's."""
    import pandas as pd

    table = []
    for policy in results.policies:
        row: dict[str, Any] = {"policy": policy}
        for name in CLASS_NAMES:
            for figure in ("ttft_attained", "slo_attained"):
                row |= _columns(f"{name}_{figure}", results.mean(policy, f"{name}_{figure}"))
        ratio = pooled_ratio(results, policy)
        row |= _columns("fairness_ratio", ratio)
        row["equitable"] = None if ratio is None else ratio.mean <= EQUITABLE_RATIO
        row |= _columns("fairness_ratio_full_slo", pooled_ratio(results, policy, figure="slo_attained"))
        table.append(row)
    return pd.DataFrame(table)


def decision_table(results: Results) -> pd.DataFrame:
    """decision_map.csv: per workload, the cheaper mechanism for the oldest decode, and the best policies."""
    import pandas as pd

    table = []
    for workload in results.workloads:
        row: dict[str, Any] = {"workload": workload}
        if results.has(["oldest_checkpoint", "oldest_recompute"]):
            figure = "overhead_per_interrupt_ms"
            for policy in ("oldest_checkpoint", "oldest_recompute"):
                row |= _columns(policy + "_overhead_ms", results.mean(policy, figure, [workload]))
            gap = results.difference("oldest_checkpoint", "oldest_recompute", figure, [workload])
            row["cheaper_mechanism"] = winner(gap)
            row |= _columns("checkpoint_minus_recompute_ms", gap)
        best_of = (("lowest_urgent_p95", "urgent_ttft_p95_ms", min), ("best_value", "value_score", max))
        for column, figure, best in best_of:
            means = {p: m.mean for p in results.policies if (m := results.mean(p, figure, [workload])) is not None}
            if means:
                name = best(means, key=lambda p: means[p])
                row |= {column: name, f"{column}_figure": means[name]}
        table.append(row)
    return pd.DataFrame(table)


def winner(checkpoint_minus_recompute: Interval | None) -> str | None:
    """The cheaper mechanism; "undecided" where the interval holds zero; None without interruptions."""
    if checkpoint_minus_recompute is None:
        return None
    if checkpoint_minus_recompute.negative:
        return "checkpoint"
    return "recompute" if checkpoint_minus_recompute.positive else "undecided"
