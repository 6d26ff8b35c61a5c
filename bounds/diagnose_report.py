"""A diagnosis as a page of text and as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bounds.diagnose import Diagnosis, Variant
from bounds.report import heading

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {"scheduler": "#000000", "victim rule": "#56B4E9", "reservation": "#009E73", "max_num_seqs": "#E69F00",
            "watermark": "#CC79A7"}  # fmt: skip


def page(d: Diagnosis) -> str:
    """One page: each question with its answer."""
    parts = [heading(d.instance), f"scheduler {d.scheduler}: {_ms(d.makespan_ms)}, {d.metrics.summary.batches:,} "
             f"batches, {d.metrics.summary.preemptions:,} preemptions"]  # fmt: skip
    for question, answers in _answers(d):
        parts += ["", question, *(f"  {answer}" for answer in answers)]
    if d.skipped:
        parts += ["", "Not simulated, time was over: " + ", ".join(d.skipped)]
    return "\n".join(parts)


def _answers(d: Diagnosis) -> list[tuple[str, list[str]]]:
    return [
        ("Can every request be served in M?", _feasibility(d)),
        ("How much can scheduling save at all?", _savings(d)),
        ("How much time goes to recomputing, and how much could a victim rule save?", _recompute(d)),
        ("Which setting is nearest the optimum here?", _settings(d)),
        ("Would better hardware help, and by how much at most?", _hardware(d)),
        ("Recompute or swap?", _swapping(d)),
    ]


def _feasibility(d: Diagnosis) -> list[str]:
    if d.infeasible:
        named = ", ".join(d.infeasible[:5]) + (", ..." if len(d.infeasible) > 5 else "")
        lines = [f"No: {len(d.infeasible)} can never fit and are left out below: {named}"]
    else:
        lines = ["Yes: every request's I + O - 1 KVs fit."]
    if d.stalled:
        lines.append(f"But {d.scheduler} never finishes {d.stalled} of them; its makespan is that of the others.")
    return lines


def _savings(d: Diagnosis) -> list[str]:
    if d.most_to_save is None:
        return [f"Unknown: {d.scheduler} leaves requests unfinished; no schedule of all takes less than "
                f"{_ms(d.lower_bound.value_ms)}, and one of {_ms(d.best_ms)} exists ({d.best_by})."]  # fmt: skip
    return [
        f"At most {d.most_to_save:.1%}: no schedule takes less than {_ms(d.lower_bound.value_ms)} "
        f"({d.lower_bound.name} bound).",
        f"At least {max(0.0, 1 - d.best_ms / d.makespan_ms):.1%}: a schedule of {_ms(d.best_ms)} exists ({d.best_by}).",
    ]


def _recompute(d: Diagnosis) -> list[str]:
    tax = d.metrics.recompute_ms
    share = d.metrics.recompute_share or 0.0
    lines = [f"{_ms(tax)}, {share:.1%} of the time in batches, for {d.metrics.summary.refilled_tokens:,} tokens."]
    most = max(0.0, d.makespan_ms - d.lower_bound.value_ms)
    if d.most_to_save is None:
        return lines
    if not tax:
        return [*lines, "Nothing is recomputed, so no victim rule matters."]
    lines.append(
        f"No victim rule saves more than {_ms(most)} ({d.most_to_save:.1%} of the makespan), whatever it does."
    )
    best = d.best("victim rule")
    if best is not None and best.makespan_ms is not None:
        saved = d.makespan_ms - best.makespan_ms
        lines.append(f"Best of those tried: {best.what}, {_ms(best.makespan_ms)} ({saved / d.makespan_ms:+.1%} saved).")
    return lines


def _settings(d: Diagnosis) -> list[str]:
    lines = []
    for group in ("victim rule", "reservation", "watermark", "max_num_seqs"):
        best = d.best(group)
        if best is not None and best.makespan_ms is not None and best.above is not None:
            change = "" if d.stalled else f" ({best.makespan_ms / d.makespan_ms - 1:+.1%})"
            lines.append(f"{group}: {best.what}, {_ms(best.makespan_ms)}{change}, "
                         f"at most {best.above:.1%} above the optimum")  # fmt: skip
    return lines or ["No answer: time was over." if d.skipped else "No variant of this scheduler finishes."]


def _hardware(d: Diagnosis) -> list[str]:
    words = {"kv=2": "twice the KV memory", "bandwidth=2": "twice the bandwidth", "compute=2": "twice the compute"}
    lines = []
    for w in d.what_ifs:
        if w.makespan_ms is None or w.faster_at_most is None:
            lines.append(f"{words.get(w.what, w.what)}: no schedule of all requests below {_ms(w.lower_bound_ms)}")
            continue
        lines.append(f"{words.get(w.what, w.what)}: this scheduler {w.makespan_ms / d.makespan_ms - 1:+.1%}; no "
                     f"scheduler could save more than {w.faster_at_most:.1%} of today's time")  # fmt: skip
    return lines


def _swapping(d: Diagnosis) -> list[str]:
    if d.swap is None:
        if d.skipped:
            return ["No answer: time was over."]
        return ["No answer: the link between GPU and host is not known for this cost model."]
    if not d.swap.preemptions:
        return [f"{d.swap.scheduler} preempts nobody here, so there is nothing to swap."]
    change = d.swap.swap_ms / d.swap.recompute_ms - 1
    verdict = "Swap" if change < 0 else "Recompute"
    return [f"{verdict}: {d.swap.scheduler} takes {_ms(d.swap.recompute_ms)} recomputing and "
            f"{_ms(d.swap.swap_ms)} swapping ({change:+.2%}, {d.swap.preemptions:,} preemptions)."]  # fmt: skip


def _ms(value: float) -> str:
    return f"{value:,.1f} ms"


def plot_diagnosis(d: Diagnosis, *, ax: Axes | None = None) -> Axes:
    """Every variant's makespan beside the best schedule and the certified lower bound."""
    import matplotlib.pyplot as plt

    rows: Sequence[Variant] = [
        Variant(d.scheduler, "scheduler", None if d.stalled else d.makespan_ms, 0, 0.0, None), *d.variants,
    ]  # fmt: skip
    finished = sorted((v for v in rows if v.makespan_ms is not None), key=lambda v: -(v.makespan_ms or 0))
    if ax is None:
        _, ax = plt.subplots(figsize=(8.5, 1.8 + 0.26 * len(finished)), layout="constrained")
    for place, v in enumerate(finished):
        bar = ax.barh(place, (v.makespan_ms or 0) / 1000, color=_COLOURS[v.group])
        text = "" if v.above is None else f"at most {v.above:.1%} above the optimum"
        ax.bar_label(bar, [text], padding=4, fontsize=7)
    ax.set_yticks(range(len(finished)), [v.what for v in finished], fontsize=8)
    ax.axvline(d.lower_bound.value_ms / 1000, color="#000000", linestyle="--", linewidth=1.5,
               label=f"lower bound ({d.lower_bound.name}): {_ms(d.lower_bound.value_ms)}")  # fmt: skip
    ax.axvline(d.best_ms / 1000, color="#D55E00", linewidth=1.5, label=f"best schedule found: {_ms(d.best_ms)}")
    for group in dict.fromkeys(v.group for v in finished):
        ax.barh([0], [0], color=_COLOURS[group], label=group)
    ax.set_xlim(0, max([d.best_ms, *((v.makespan_ms or 0) for v in finished)]) / 1000 * 1.35)
    ax.set_xlabel("makespan (s)")
    ax.set_title(f"{d.instance.name}: {len(d.instance.requests):,} requests, M = {d.instance.kv_capacity_tokens:,}",
                 fontsize=10, loc="left")  # fmt: skip
    ax.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.09), ncols=2, frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    return ax
