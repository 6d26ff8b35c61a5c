"""The whole benchmark: what is run, the tables made of it, and the files written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bounds.preemption_bench.breakeven import breakeven_table
from bounds.preemption_bench.cases import Case
from bounds.preemption_bench.claims import Claim, Evidence, all_claims, claims_table
from bounds.preemption_bench.claims.advice import advice_table
from bounds.preemption_bench.optimum import OptimumCase, contested_seeds, distance_table, optimum_table
from bounds.preemption_bench.runner import run_tasks
from bounds.preemption_bench.tables import (
    Results,
    decision_table,
    fairness_summary,
    fairness_table,
    summary_table,
)  # fmt: skip
from sim.cost.model import cost_model_names
from sim.interrupts import constants

if TYPE_CHECKING:
    import pandas as pd

CASES_FOLDER = "cases"


@dataclass(frozen=True, slots=True)
class Options:
    """What is run.

    Parameters
    ----------
    seeds
        Seeds of the full workloads.
    optimum_cases
        Shortened versions of each workload that are solved exactly.
    requests
        Per full workload; each workload's own number by default.
    """

    workloads: tuple[str, ...]
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    optimum_cases: int = 3
    cost_model: str = constants.COST_MODEL
    requests: int | None = None


@dataclass(frozen=True, slots=True)
class Suite:
    """A finished benchmark.

    Parameters
    ----------
    tables
        By file name without ".csv".
    """

    options: Options
    results: Results
    tables: dict[str, pd.DataFrame]
    claims: list[Claim]


def run_suite(
    options: Options, out: Path, *, workers: int = 1, progress: Callable[[int, int, str], None] | None = None
) -> Suite:
    """Run or resume all cases in ``out`` and make the tables."""
    cases = [Case(workload, policy, seed, options.cost_model, options.requests)
             for workload in options.workloads for seed in options.seeds for policy in options.policies]  # fmt: skip
    short = [OptimumCase(workload, seed, options.policies, options.cost_model)
             for workload in options.workloads
             for seed in contested_seeds(workload, options.optimum_cases, options.cost_model)]  # fmt: skip
    rows = run_tasks([*cases, *short], out / CASES_FOLDER, workers=workers, progress=progress)
    results = Results([row for case in cases for row in rows[case]])
    breakeven = breakeven_table(_of_the_same_setup(options.cost_model))
    evidence = Evidence(results, breakeven, options.cost_model)
    claims = all_claims(evidence)
    tables = {
        "summary": summary_table(results), "decision_map": decision_table(results), "breakeven_analysis": breakeven,
        "fairness_analysis": fairness_table(results), "fairness_summary": fairness_summary(results),
        "operational_recommendations": advice_table(evidence), "claims": claims_table(claims),
    }  # fmt: skip
    if short:
        tables["optimum"] = optimum_table([row for case in short for row in rows[case]])
        tables["optimum_distance"] = distance_table(tables["optimum"])
    return Suite(options, results, tables, claims)


def _of_the_same_setup(cost_model: str) -> list[str]:
    """The cost model, then others of the same LLM and GPU."""
    setup = cost_model.rpartition("/")[2]
    return [cost_model, *(n for n in cost_model_names() if n.rpartition("/")[2] == setup and n != cost_model)]
