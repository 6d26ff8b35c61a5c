"""Tables and sentences for people."""

from __future__ import annotations

import textwrap
from collections import Counter
from fractions import Fraction

from rich.console import Console
from rich.table import Table

from bounds.breakeven import breakeven
from bounds.compare import Comparison
from csp.result import Bound, Result
from sim.clock import ms_from_ticks
from sim.cost.model import CostModel
from sim.instance import Instance
from sim.metrics import summary


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Whoever reads no further has what they wanted: not an error, as for what is printed without a console."""
        raise BrokenPipeError


def console() -> Console:
    """A console that never wraps table rows when its output is not a terminal."""
    plain = _Console(highlight=False, soft_wrap=True)
    return plain if plain.is_terminal else _Console(highlight=False, width=200, soft_wrap=True)


def number(value: float | None, digits: int = 3) -> str:
    """A number for a table; "-" for unknown."""
    return "-" if value is None else f"{value:,.{digits}f}"


def percent(value: float | None) -> str:
    """A fraction as percent for a table; "-" for unknown."""
    return "-" if value is None else f"{value:.1%}"


def comparison_table(comparison: Comparison) -> Table:
    """One row per scheduler, the best schedule's row last."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("scheduler", no_wrap=True)
    for column in ("makespan ms", "batches", "preempt", "refilled", "TTFT ms", "TPOT ms", "gap", "ratio"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in sorted(comparison.rows, key=lambda row: (not row.finished, row.summary.makespan_ms)):
        s = row.summary
        table.add_row(row.title, number(s.makespan_ms if row.finished else None), str(s.batches), str(s.preemptions),
                      f"{s.refilled_tokens:,}", number(s.ttft_mean_ms), number(s.tpot_mean_ms), percent(row.gap),
                      number(row.ratio_to_best))  # fmt: skip
    result = comparison.result
    if result.replay is not None:
        s = summary(result.replay)
        word = "optimum" if result.status == "OPTIMAL" else "best found"
        table.add_section()
        table.add_row(word, number(s.makespan_ms), str(s.batches), str(s.preemptions), f"{s.refilled_tokens:,}",
                      number(s.ttft_mean_ms), number(s.tpot_mean_ms), percent(result.gap), "1.000",
                      style="bold")  # fmt: skip
    return table


def solver_words(result: Result) -> str:
    """The solver with its version, and the formulation where it solved one."""
    alone = result.solver_version.startswith(("search", "portfolio", "rounds"))
    return result.solver_version if alone else f"{result.solver_version}, {result.formulation}"


def proof_sentence(result: Result) -> str:
    """What the result proves, by whom, and how long it took."""
    who = f"{solver_words(result)}, {result.runtime_s:.1f} s, seed {result.seed}"
    if result.status == "OPTIMAL" and result.objective_ticks is not None:
        return f"OPTIMAL: no schedule is faster than {ms_from_ticks(result.objective_ticks):.6f} ms ({who})"
    if result.status == "INFEASIBLE":
        return f"INFEASIBLE: no schedule exists ({who})"
    if result.lower_bound_ticks is None:
        return f"{result.status}: no lower bound ({who})"
    lower = f"{ms_from_ticks(result.lower_bound_ticks):.6f} ms ({result.lower_bound_source})"
    if result.objective_ticks is None:
        return f"{result.status}: every schedule takes at least {lower}; none found ({who})"
    best = f"{ms_from_ticks(result.objective_ticks):.6f} ms ({result.found_by or result.solver})"
    note = "" if result.exact else f"; not exact here: {result.exact_reason}"
    return f"{result.status}: {lower} <= optimum <= {best}, gap {percent(result.gap)} ({who}{note})"


def interval_sentence(result: Result) -> str:
    """The interval the optimum lies in, and who gives its ends."""
    if result.lower_bound_ticks is None:
        return "no lower bound"
    lower = f"{ms_from_ticks(result.lower_bound_ticks):,.3f} ms ({result.lower_bound_source})"
    if result.objective_ticks is None:
        return f"optimum >= {lower}; no schedule found ({result.runtime_s:.1f} s)"
    upper = f"{ms_from_ticks(result.objective_ticks):,.3f} ms ({result.found_by})"
    return f"{lower} <= optimum <= {upper}, gap {result.gap:.2%} ({result.runtime_s:.1f} s)"


def window_lines(comparison: Comparison) -> list[str]:
    """What became of windows of the best schedule that were solved exactly; nothing where there were none."""
    tally = comparison.windows
    if tally is None or not tally.total:
        return []
    gained = f"{tally.improved:,} made faster, by {ms_from_ticks(tally.gained_ticks):,.3f} ms in all"
    return [f"exact windows: {tally.total:,}, {tally.settled + tally.proven:,} of them proven best "
            f"between their ends, {gained}; nothing is proven about the whole schedule"]  # fmt: skip


def distance_table(comparison: Comparison) -> Table:
    """One row per scheduler with its certified distance from the optimum, nearest first."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("scheduler", no_wrap=True)
    objective = comparison.result.objective
    for column in (f"{objective} ms", "batches", "preempt", "refilled", "above the optimum by"):
        table.add_column(column, justify="right", no_wrap=True)
    lower, best = comparison.result.lower_bound_ticks, comparison.result.objective_ticks
    for row in sorted(comparison.rows, key=lambda row: (not row.finished, row.value_ticks or 0)):
        s = row.summary
        most = least = None
        if row.value_ticks is not None and lower and best:
            most, least = float(Fraction(row.value_ticks) / lower - 1), float(Fraction(row.value_ticks) / best - 1)
        distance = "-" if most is None or least is None else f"{least:.1%} to {most:.1%}"
        value = None if row.value_ticks is None else ms_from_ticks(row.value_ticks)
        table.add_row(row.title, number(value), f"{s.batches:,}", f"{s.preemptions:,}", f"{s.refilled_tokens:,}",
                      distance)  # fmt: skip
    return table


def stalled_lines(comparison: Comparison) -> list[str]:
    """Which schedulers never finish, and what blocks them."""
    runs = [row.simulation for row in comparison.rows if row.simulation.stalled]
    return [f"{run.scheduler} never finishes {len(run.stalled)} of the requests: {run.why_stalled}" for run in runs]


def bound_lines(bounds: tuple[Bound, ...]) -> list[str]:
    """One line per lower bound, with seconds spent and the numbers that make it; those that all share at the end."""
    width = max((len(bound.name) for bound in bounds), default=0)
    inputs = [_plain(bound) for bound in bounds]
    holders = Counter(k for numbers in inputs for k in numbers)
    shared = {k: v for numbers in inputs for k, v in numbers.items()
              if holders[k] > 1 and all(other.get(k, v) == v for other in inputs)}  # fmt: skip
    lines = []
    for bound, numbers in sorted(zip(bounds, inputs, strict=True), key=lambda pair: -pair[0].value_ms):
        own = _words({k: v for k, v in numbers.items() if k not in shared})
        value = f"{bound.value_ms:>14,.6f} ms  {bound.runtime_s:>5.1f} s"
        lines.append(f"  {bound.name:<{width}}  {value}   {own}".rstrip())
    if shared:
        first = f"  {'from':<{width}}  "
        # No-break spaces keep a name and its number on one line.
        text = ", ".join(_words({k: v}).replace(" ", "\u00a0") for k, v in shared.items())
        wrapped = textwrap.wrap(text, 120, initial_indent=first, subsequent_indent=" " * len(first))
        lines += [line.replace("\u00a0", " ") for line in wrapped]
    return lines


def _plain(bound: Bound) -> dict[str, int | float | str]:
    return {k: v for k, v in bound.inputs.items() if isinstance(v, int | float | str)}


def _words(numbers: dict[str, int | float | str]) -> str:
    return ", ".join(f"{k} = {v:.6g}" if isinstance(v, float) else f"{k} = {v}" for k, v in numbers.items())


def heading(instance: Instance) -> str:
    """The instance in one line."""
    when = "offline" if instance.offline else "online"
    extra = "" if instance.max_num_seqs is None else f", max_num_seqs = {instance.max_num_seqs}"
    extra += "" if instance.block_size == 1 else f", blocks of {instance.block_size}"
    return (f"{instance.name}: {len(instance.requests):,} requests, {when}, M = {instance.kv_capacity_tokens:,} KV "
            f"tokens, C = {instance.token_budget:,} tokens{extra}, {instance.cost_model}")  # fmt: skip


def breakeven_sentence(instance: Instance, cost: CostModel) -> str:
    """Whether preempting can pay here, by the break-even of the cost model."""
    computed = breakeven(cost)
    return f"does preempting pay here? {computed.verdict(instance).reason} (rule of thumb of section 7.3)"
