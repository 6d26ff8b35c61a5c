"""What a run leaves behind: tables, figures and the one-page report, in Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path

from bounds.preemption_bench.claims import NOT, REPRODUCED
from bounds.preemption_bench.suite import Suite
from sim.cost.model import load_cost_model
from sim.interrupts import constants


def report_text(suite: Suite) -> str:
    """Setup, what is possible, what each workload says, and every claim with its verdict."""
    options = suite.options
    parts = [
        "# Decode preemption: when to interrupt for an urgent request",
        _setup(suite),
        "## What is possible",
        _possible(suite),
        "## Per workload",
        _workloads(suite),
        "## Claims of the original benchmark",
        _verdicts(suite),
        _table(["claim", "original", "ours (95 % interval)", "verdict", "why"],
               [[c.statement, c.original, c.ours, c.verdict, c.why] for c in suite.claims]),
        f"Policies: {', '.join(options.policies)}. Tables: *.csv. Figures: plots/.",
    ]  # fmt: skip
    return "\n\n".join(part for part in parts if part) + "\n"


def _setup(suite: Suite) -> str:
    o, cost = suite.options, load_cost_model(suite.options.cost_model)
    return (
        f"{len(o.workloads)} workloads x {len(o.policies)} policies x {len(o.seeds)} seeds, means with 95 % intervals "
        f"over seeds (Student's t). Batch times: {cost.name}. Server: {constants.MAX_NUM_SEQS} slots, "
        f"{constants.KV_CAPACITY_TOKENS:,} KV tokens, {constants.TOKEN_BUDGET} tokens a batch; a KV token is "
        f"{constants.KV_BYTES_PER_TOKEN:,} bytes, {constants.transfer_ms_per_mb():.4f} ms per MB over "
        f"{constants.LINK.title}, {constants.prefill_ms_per_token(cost):.4f} ms per prefilled token. Their sources: "
        "sim/interrupts/constants.py."
    )


def _possible(suite: Suite) -> str:
    summary = suite.tables["summary"]
    floors = summary.groupby("policy", sort=False)[["urgent_ttft_p95_ms", "urgent_ttft_p95_floor_ms"]].mean()
    ratio = floors["urgent_ttft_p95_ms"] / floors["urgent_ttft_p95_floor_ms"]
    rows: list[list[object]] = []
    distance = suite.tables.get("optimum_distance")
    by_policy = None if distance is None else distance.set_index("policy")
    for policy in floors.index:
        row: list[object] = [policy, _number(floors.loc[policy, "urgent_ttft_p95_ms"]), _number(ratio[policy])]
        if by_policy is not None:
            d = by_policy.loc[policy]
            row += [_number(d["ttft_over_optimum"]), _number(d["ttft_over_optimum_in_time"]),
                    _number(d["overhead_above_optimum_in_time_ms"])]  # fmt: skip
        rows.append(row)
    header = ["policy", "urgent p95 TTFT, ms", "over the certified floor"]
    text = (
        "Full workloads: urgent p95 TTFT over a floor that holds for every schedule (each request's own prefill alone)."
    )
    if by_policy is not None:
        header += ["max TTFT over the optimum", "over the optimum in time", "overhead above it, ms"]
        text += (" Shortened workloads: maximum urgent TTFT over the proven optimum, and over the optimum among "
                 "schedules that end no later than the policy (or than no_preemption).")  # fmt: skip
    return text + "\n\n" + _table(header, rows)


def _workloads(suite: Suite) -> str:
    table = suite.tables["decision_map"]
    header = ["workload", "cheaper mechanism", "checkpoint, ms", "recompute, ms", "lowest urgent p95", "best value"]
    rows: list[list[object]] = []
    for r in table.to_dict("records"):
        rows.append([
            r["workload"], r.get("cheaper_mechanism") or "-", _interval(r, "oldest_checkpoint_overhead_ms"),
            _interval(r, "oldest_recompute_overhead_ms"),
            f"{r['lowest_urgent_p95']} ({_number(r['lowest_urgent_p95_figure'])} ms)",
            f"{r['best_value']} ({_number(r['best_value_figure'])})",
        ])  # fmt: skip
    return "Cost per interruption of the oldest decode, and who does best (by the mean).\n\n" + _table(header, rows)


def _interval(row: Mapping[Hashable, object], name: str) -> str:
    if _missing(row.get(name)):
        return "-"
    text = _number(row[name])
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    return text if _missing(low) or _missing(high) else f"{text} [{_number(low)}, {_number(high)}]"


def _verdicts(suite: Suite) -> str:
    counts = Counter(claim.verdict for claim in suite.claims)
    order = (REPRODUCED, "direction only", NOT, "undecided", "not tested")
    told = ", ".join(f"{counts[word]} {word}" for word in order if counts[word])
    return (
        f"{told}. A verdict is computed from our figures alone: *reproduced* needs the direction, beyond the "
        "interval, and the figure; *direction only* the direction; *undecided*: the interval holds both."
    )


def _missing(value: object) -> bool:
    return value is None or value != value


def _number(value: object) -> str:
    return "-" if _missing(value) else f"{float(value):.3g}"  # type: ignore[arg-type]


def _table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "/") for cell in line) + " |" for line in lines)


def write_suite(suite: Suite, out: Path, *, figures: bool = True) -> list[Path]:
    """Write tables, figures and the report, each in one step; the paths written."""
    from bounds.cli_options import write_text

    written = []
    for name, table in suite.tables.items():
        path = out / f"{name}.csv"
        write_text(table.to_csv(index=False, float_format="%.6g"), path)
        written.append(path)
    if figures:
        written += _figures(suite, out / "plots")
    path = out / "report.md"
    write_text(report_text(suite), path)
    return [*written, path]


def _figures(suite: Suite, folder: Path) -> list[Path]:
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib.figure import Figure

    from bounds.plot import save_figure
    from bounds.preemption_bench import plots

    t = suite.tables
    drawn = {
        "01_urgent_ttft_p95": (plots.plot_urgent_ttft, t["summary"]),
        "02_preemption_overhead": (plots.plot_overhead, t["summary"]),
        "03_slo_by_urgency": (plots.plot_slo, t["fairness_summary"]),
        "04_value_score": (plots.plot_value, t["summary"]), "05_tradeoff": (plots.plot_tradeoff, t["summary"]),
        "06_breakeven": (plots.plot_breakeven, t["breakeven_analysis"]),
        "07_fairness": (plots.plot_fairness, t["fairness_analysis"]),
        "08_operational_recs": (plots.plot_advice, t["operational_recommendations"]),
        "09_fairness_summary": (plots.plot_fairness_summary, t["fairness_summary"]),
    }  # fmt: skip
    if "optimum" in t:
        drawn["10_optimum"] = (plots.plot_optimum, t["optimum"])
    paths = []
    for name, (plot, table) in drawn.items():
        if len(table):
            figure = plot(table).figure
            assert isinstance(figure, Figure)
            paths.append(save_figure(figure, folder, name))
    return paths
