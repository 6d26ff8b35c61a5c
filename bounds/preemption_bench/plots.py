"""Figures of the benchmark. Each takes a table (`tables`, `breakeven`, `optimum`) and draws on one pair of axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bounds.preemption_bench.claims.fairness import ORIGINAL as ORIGINAL_FAIRNESS
from bounds.preemption_bench.tables import CLASS_NAMES, EQUITABLE_RATIO
from sim.interrupts.policy import policy_names

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# Okabe-Ito and grey; each policy also has a marker of its own.
_COLOURS = (
    "#000000",
    "#0072B2",
    "#D55E00",
    "#56B4E9",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#999999",
    "#F0E442",
    "#0072B2",
)
_MARKERS = ("X", "o", "s", "^", "D", "v", "P", "*", "h", "<")
_ORDER = ("no_preemption", "oldest_checkpoint", "oldest_recompute", "longest_remaining_checkpoint",
          "best_effort_first_checkpoint", "kv_pressure_checkpoint", "oracle_preemption", "srf_recompute", "cost_aware",
          "oldest_pause")  # fmt: skip
_CLASS_COLOURS = {"urgent": "#D55E00", "standard": "#0072B2", "best_effort": "#009E73"}


def style(policy: str) -> dict[str, Any]:
    """Colour and marker of a policy, the same in every figure."""
    known = [*_ORDER, *(p for p in policy_names() if p not in _ORDER)]
    place = known.index(policy) % len(_COLOURS)
    return {"color": _COLOURS[place], "marker": _MARKERS[place]}


def _axes(ax: Axes | None, width: float, height: float) -> Axes:
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _errors(table: pd.DataFrame, figure: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Distances from the mean to the interval's ends, 0 where there is none; shape (2, rows)."""
    mean = table[figure].to_numpy(float)
    low, high = (table[f"{figure}_{end}"].to_numpy(float) for end in ("low", "high"))
    return np.nan_to_num(np.maximum([mean - low, high - mean], 0))


def _policies(table: pd.DataFrame) -> list[str]:
    there = set(table["policy"])
    return [p for p in _ORDER if p in there] + sorted(there - set(_ORDER))


def _legend_below(ax: Axes) -> None:
    """A legend half an inch below the axes, under their label whatever their height."""
    height_inches = ax.get_window_extent().height / ax.figure.dpi
    ax.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.4, -0.5 / height_inches), ncols=2, frameon=False)


def plot_urgent_ttft(summary: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """01: p95 TTFT of urgent requests by workload and policy, with 95 % intervals and the certified floor."""
    workloads, policies = list(dict.fromkeys(summary["workload"])), _policies(summary)
    ax = _axes(ax, 9, 1.2 + 0.95 * len(workloads))
    for place, policy in enumerate(policies):
        rows = summary[summary["policy"] == policy]
        y = [workloads.index(w) + 0.7 * (place / max(len(policies) - 1, 1) - 0.5) for w in rows["workload"]]
        errors = np.minimum(_errors(rows, "urgent_ttft_p95_ms"), 0.999 * rows["urgent_ttft_p95_ms"].to_numpy(float))
        ax.errorbar(rows["urgent_ttft_p95_ms"], y, xerr=errors, linestyle="", capsize=2, markersize=6, elinewidth=0.8,
                    label=policy, **style(policy))  # fmt: skip
    floors = summary.groupby("workload", sort=False)["urgent_ttft_p95_floor_ms"].first()
    for place, floor in enumerate(floors.reindex(workloads)):
        ax.plot([floor, floor], [place - 0.42, place + 0.42], color="#000000", linewidth=1.6,
                label="floor: own prefill alone" if place == 0 else None)  # fmt: skip
    ax.set_xscale("log")
    ax.set_xlim(left=0.7 * summary["urgent_ttft_p95_floor_ms"].min())
    ax.set_xlabel("urgent p95 TTFT (ms, log scale; intervals may reach beyond the left edge)")
    ax.set_yticks(range(len(workloads)), workloads)
    ax.invert_yaxis()
    ax.grid(axis="x", color="#DDDDDD")
    ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    ax.set_title("How long urgent requests wait", loc="left", fontsize=10)
    return ax


def plot_overhead(summary: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """02: time lost per interruption by mechanism, beside what recomputing the prompt alone would cost."""
    workloads = list(dict.fromkeys(summary["workload"]))
    shown = [p for p in _ORDER[1:5] if p in set(summary["policy"])]
    ax = _axes(ax, 9.5, 4)
    bars = [(p, p, "overhead_per_interrupt_ms", style(p)["color"], "") for p in shown]
    if "oldest_recompute" in shown:
        bars.append(("oldest_recompute", "oldest_recompute, prompt only (original's formula)",
                     "prompt_only_per_interrupt_ms", "#FFFFFF", "///"))  # fmt: skip
    for place, (policy, label, figure, colour, hatch) in enumerate(bars):
        rows = summary[summary["policy"] == policy].set_index("workload").reindex(workloads)
        x = np.arange(len(workloads)) + 0.8 * (place - (len(bars) - 1) / 2) / len(bars)
        errors = _errors(rows, figure)
        errors[0] = np.minimum(errors[0], np.nan_to_num(rows[figure].to_numpy(float)))
        ax.bar(x, rows[figure], 0.8 / len(bars), yerr=errors, color=colour, edgecolor="#000000", linewidth=0.5,
               hatch=hatch, capsize=2, error_kw={"elinewidth": 0.8}, label=label)  # fmt: skip
    ax.set_xticks(range(len(workloads)), [w.replace("_", "\n", 1) for w in workloads])
    ax.set_ylabel("overhead per interruption (ms)")
    ax.set_ylim(bottom=0)
    ax.grid(axis="y", color="#DDDDDD")
    ax.set_axisbelow(True)
    if bars:
        ax.legend(fontsize=8, frameon=False)
    ax.set_title("What an interruption costs", loc="left", fontsize=10)
    return ax


def plot_slo(fairness_summary: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """03: share of each class that met its TTFT limit (bars), and all its limits (marks), over all workloads."""
    policies = _policies(fairness_summary)
    table = fairness_summary.set_index("policy").reindex(policies)
    ax = _axes(ax, 8.5, 1.2 + 0.5 * len(policies))
    for place, name in enumerate(CLASS_NAMES):
        y = np.arange(len(policies)) + 0.27 * (place - 1)
        ax.barh(y, table[f"{name}_ttft_attained"], 0.25, color=_CLASS_COLOURS[name],
                label=f"{name.replace('_', ' ')}: first token in time")  # fmt: skip
        ax.plot(table[f"{name}_slo_attained"], y, linestyle="", marker="|", markersize=9, markeredgewidth=2,
                color="#000000", label="completed, all limits met" if place == 2 else None)  # fmt: skip
    ax.set_yticks(range(len(policies)), policies)
    ax.invert_yaxis()
    ax.set_xlim(0, 1)
    ax.set_xlabel("share of the class's requests")
    _legend_below(ax)
    ax.set_title("Limits met, by class", loc="left", fontsize=10)
    return ax


def _heat_map(ax: Axes, values: pd.DataFrame, label: str, *, reverse: bool) -> None:
    data = values.to_numpy(float)
    image = ax.imshow(data, cmap="cividis_r" if reverse else "cividis", aspect="auto")
    middle = (np.nanmin(data) + np.nanmax(data)) / 2
    for (row, column), value in np.ndenumerate(data):
        bright = (value < middle) if reverse else (value > middle)
        ax.text(column, row, "-" if np.isnan(value) else f"{value:.2f}", ha="center", va="center", fontsize=8,
                color="#000000" if bright else "#FFFFFF")  # fmt: skip
    ax.set_xticks(range(len(values.columns)), list(values.columns), rotation=35, ha="right")
    ax.set_yticks(range(len(values.index)), list(values.index))
    ax.figure.colorbar(image, ax=ax, label=label)


def plot_value(summary: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """04: value of the requests that met all limits over the value of all."""
    ax = _axes(ax, 9.5, 4.2)
    values = summary.pivot(index="workload", columns="policy", values="value_score")[_policies(summary)]
    _heat_map(ax, values, "value score (1: every limit met)", reverse=False)
    ax.set_title("Value score", loc="left", fontsize=10)
    return ax


def plot_tradeoff(summary: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """05: urgent latency against time lost, each policy's workloads (small) and their mean (large)."""
    ax = _axes(ax, 8, 5)
    for policy in _policies(summary):
        rows = summary[summary["policy"] == policy]
        x, y = 100 * rows["overhead_share"].to_numpy(float), rows["urgent_ttft_p95_ms"].to_numpy(float)
        look = style(policy)
        ax.scatter(x, y, s=16, alpha=0.5, **look)
        ax.scatter(x.mean(), np.exp(np.log(y).mean()), s=110, edgecolor="#000000", linewidth=0.8, label=policy, **look)
    ax.set_yscale("log")
    ax.set_xlabel("busy time lost to interruptions (%)")
    ax.set_ylabel("urgent p95 TTFT (ms, log scale)")
    ax.grid(color="#DDDDDD")
    ax.set_axisbelow(True)
    ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    ax.set_title("Trade-off: latency of the urgent against time lost", loc="left", fontsize=10)
    return ax


def plot_breakeven(breakeven: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """06: resume probability above which a checkpoint is cheaper than a refill, by KVs held and cost model."""
    ax = _axes(ax, 8, 5.2)
    lines = ("-", "--", "-.", ":")
    for place, (name, rows) in enumerate(breakeven.groupby("cost_model", sort=False)):
        never = rows["breakeven_resume_probability"].astype(float).fillna(1.0)
        ax.plot(rows["kv_tokens"], never, linestyle=lines[place % 4], marker=_MARKERS[1 + place % 8],
                color=_COLOURS[1 + place % 8], label=f"whole sequence, {name}")  # fmt: skip
    first = breakeven[breakeven["cost_model"] == breakeven["cost_model"].iloc[0]]
    one_way = first["checkpoint_round_trip_ms"] / 2
    gain = first["prompt_only_ms"] - one_way
    prompt_only = np.where(gain > one_way, one_way / gain.where(gain > one_way, 1.0), 1.0)
    ax.plot(first["kv_tokens"], prompt_only, color="#000000", linestyle=":", marker="x",
            label="prompt of 161 tokens only (original's formula)")  # fmt: skip
    ax.set_xscale("log", base=2)
    ax.set_xticks(first["kv_tokens"], [str(kv) for kv in first["kv_tokens"]], rotation=45)
    ax.set_ylim(0, 1.05)
    ax.set_xlabel("KVs the victim holds (tokens)")
    ax.set_ylabel("break-even resume probability (1: never below)")
    ax.grid(color="#DDDDDD")
    ax.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.24), ncols=2, frameon=False)
    ax.set_title("Checkpoint (above a line) or recompute (below it)", loc="left", fontsize=10)
    return ax


def plot_fairness(fairness: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """07: best class's attainment over the worst's, by workload and policy (TTFT limits, means over seeds)."""
    ax = _axes(ax, 9.5, 4.2)
    shares = fairness.groupby(["workload", "policy"], sort=False)["ttft_attained"]
    ratio = (shares.max() / shares.min().where(shares.min() > 0)).unstack()
    _heat_map(ax, ratio[_policies(fairness)], "fairness ratio (1: equitable)", reverse=True)
    ax.set_title("Fairness ratio", loc="left", fontsize=10)
    return ax


def plot_advice(advice: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """08: what each recommended policy gains over its alternative, relative to the alternative's figure."""
    ax = _axes(ax, 9, 1.4 + 0.6 * len(advice))
    over = advice["over_figure"].astype(float)
    scale = (100 / over.where(over > 0)).to_numpy()  # nothing to gain on where the alternative's figure is zero
    mean = advice["advantage"].to_numpy(float) * scale
    errors = np.nan_to_num([mean - advice["advantage_low"].to_numpy(float) * scale,
                            advice["advantage_high"].to_numpy(float) * scale - mean])  # fmt: skip
    colours = {"reproduced": "#009E73", "not reproduced": "#D55E00"}
    for y, (x, verdict) in enumerate(zip(mean, advice["verdict"], strict=True)):
        ax.errorbar(x, y, xerr=errors[:, [y]], marker="o", capsize=3, color=colours.get(verdict, "#000000"))
        ax.annotate(verdict, (x, y), xytext=(0, 7), textcoords="offset points", fontsize=8, ha="center")
    ax.axvline(0, color="#000000", linewidth=0.8)
    ax.set_xscale("symlog", linthresh=1)
    ax.set_xlim(-400, 400)
    labels = [f"{r.recommendation}\n({r.preferred} over {r.over}, {r.figure})" for r in advice.itertuples()]
    ax.set_yticks(range(len(advice)), labels, fontsize=8)
    ax.set_ylim(len(advice) - 0.5, -0.6)
    ax.set_xlabel("gain of the recommended policy (%, right is better)")
    ax.set_title("The original's recommendations", loc="left", fontsize=10)
    return ax


def plot_fairness_summary(fairness_summary: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """09: fairness ratio per policy over all workloads, beside the original's."""
    policies = _policies(fairness_summary)
    table = fairness_summary.set_index("policy").reindex(policies)
    ax = _axes(ax, 8, 1.2 + 0.4 * len(policies))
    y = np.arange(len(policies))
    ax.errorbar(table["fairness_ratio"], y, xerr=_errors(table, "fairness_ratio"), linestyle="", marker="o", capsize=3,
                color="#0072B2", label="ours, first token in time (95 % interval)")  # fmt: skip
    ax.plot(table["fairness_ratio_full_slo"], y, linestyle="", marker="|", markersize=10, markeredgewidth=2,
            color="#0072B2", label="ours, all limits met")  # fmt: skip
    known = [(ORIGINAL_FAIRNESS[p][2], place) for place, p in enumerate(policies) if p in ORIGINAL_FAIRNESS]
    ax.plot([ratio for ratio, _ in known], [place for _, place in known], linestyle="", marker="D", color="#D55E00",
            fillstyle="none", label="original")  # fmt: skip
    ax.axvline(
        EQUITABLE_RATIO, color="#000000", linestyle="--", linewidth=0.8, label=f"equitable up to {EQUITABLE_RATIO}"
    )
    ax.set_xscale("log")
    ax.set_xticks([1, 1.25, 2, 5, 10, 20], ["1", "1.25", "2", "5", "10", "20"])
    ax.set_xlabel("best class's attainment over the worst's (log scale)")
    ax.set_yticks(y, policies)
    ax.invert_yaxis()
    ax.legend(fontsize=8, frameon=False, loc="center right")
    ax.set_title("Fairness over all workloads", loc="left", fontsize=10)
    return ax


def plot_optimum(optimum: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """10: maximum urgent TTFT over the proven optima of the shortened workloads, one point a case."""
    policies = _policies(optimum)
    ax = _axes(ax, 8.5, 1.4 + 0.45 * len(policies))
    for y, policy in enumerate(policies):
        rows = optimum[optimum["policy"] == policy]
        for shift, column, colour, label in (
            (-0.15, "optimum_ttft_ms", "#0072B2", "over the optimum"),
            (
                0.15,
                "optimum_in_time_ttft_ms",
                "#D55E00",
                "over the optimum that ends no later than the policy or no_preemption",
            ),
        ):
            ratio = (rows["ttft_ms"] / rows[column]).dropna()
            ax.plot(ratio, [y + shift] * len(ratio), linestyle="", marker="o", markersize=4, alpha=0.5, color=colour)
            ax.plot(ratio.mean(), y + shift, marker="D", markersize=8, color=colour, markeredgecolor="#000000",
                    linestyle="", label=label if y == 0 else None)  # fmt: skip
    ax.axvline(1, color="#000000", linewidth=0.8)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_xlabel("maximum urgent TTFT over the proven optimum (log scale; diamonds: means)")
    ax.set_yticks(range(len(policies)), policies)
    ax.invert_yaxis()
    ax.grid(axis="x", color="#DDDDDD")
    _legend_below(ax)
    ax.set_title("Distance from what is possible, shortened workloads", loc="left", fontsize=10)
    return ax
