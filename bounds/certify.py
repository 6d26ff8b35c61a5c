"""Re-check a result without the solver that made it: what it shows is recomputed, what it claims is compared.

A claim is *confirmed* when a computation here, in exact integers, gives at least as much; *refuted* when one
contradicts it; *open* when it rests on the solver alone. Bounds come from `bounds.lower`: batch counts and prices in
exact fractions, and programs whose duals (carried by the result, or solved for anew) are checked in integers: weights
of sizes by a knapsack, potentials against every batch pattern or every batch between resident sets.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from bounds.lower import NOT_UNDER_SWAPPING, bound_names, iter_bounds
from csp.objectives import load_objective
from csp.relaxations.certificate import recheck
from csp.search.space import build_space
from csp.warm import heuristic_schedules
from sim.clock import ms_from_ticks
from sim.cost.model import CostModel, load_cost_model
from sim.errors import InputError
from sim.instance import Instance
from sim.replay import PAPER_RULES, Replay, RuleError, Rules, replay
from sim.schedule import schedule_from_dict

Verdict = Literal["confirmed", "refuted", "open"]
Ticks = int | Fraction
STATUSES = ("OPTIMAL", "FEASIBLE", "INFEASIBLE", "UNKNOWN")


@dataclass(frozen=True, slots=True)
class Finding:
    """One claim and what became of it."""

    claim: str
    verdict: Verdict
    detail: str


@dataclass(slots=True)
class Certificate:
    """All findings on one result.

    Attributes
    ----------
    unit
        Of the objective: "ms", or a word.
    objective
        Of the replayed schedule; None without a valid one.
    claimed_bound
        The lower bound the result claims, as it shows it.
    confirmed_bound
        The best lower bound computed here, and its name.
    """

    unit: str = "ms"
    findings: list[Finding] = field(default_factory=list)
    objective: Ticks | None = None
    claimed_bound: float | None = None
    confirmed_bound: Ticks | None = None
    confirmed_by: str | None = None

    def note(self, claim: str, verdict: Verdict, detail: str) -> None:
        """Add a finding."""
        self.findings.append(Finding(claim, verdict, detail))

    def verdict(self) -> Verdict:
        """Refuted if any claim is, else open if any is, else confirmed."""
        verdicts = {finding.verdict for finding in self.findings}
        return "refuted" if "refuted" in verdicts else "open" if "open" in verdicts else "confirmed"

    def shown(self, value: Ticks | None) -> float | None:
        """A value as results show it."""
        if value is None:
            return None
        return ms_from_ticks(value) if self.unit == "ms" else float(value)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "schema_version": 1, "verdict": self.verdict(), "unit": self.unit,
            "objective_value": self.shown(self.objective), "claimed_lower_bound": self.claimed_bound,
            "confirmed_lower_bound": self.shown(self.confirmed_bound), "confirmed_by": self.confirmed_by,
            "findings": [{"claim": f.claim, "verdict": f.verdict, "detail": f.detail} for f in self.findings],
        }  # fmt: skip


def certify(
    result: Mapping[str, Any], instance: Instance, *, rules: Rules = PAPER_RULES, cost: CostModel | None = None,
    time_limit_s: float | None = 30.0, source: str = "result",
) -> Certificate:  # fmt: skip
    """Re-check a result (its JSON form) for an instance.

    Parameters
    ----------
    rules
        The rules it was made under.
    time_limit_s
        For each bound that is solved for anew, and for trying schedulers.

    Raises
    ------
    sim.errors.InputError
        If the result lacks fields, or a request can never fit.
    """
    _require_fields(result, source)
    instance.require_feasible()
    cost = cost or load_cost_model(instance.cost_model)
    name = str(result["objective"]).split(",")[-1]
    goal = load_objective(name)
    certificate = Certificate(unit=goal.unit)
    certificate.claimed_bound = _number(result, _key("lower_bound", result), source)
    run = _schedule(certificate, result, instance, rules, cost, source)
    if run is not None:
        certificate.objective = goal.value(run, cost)
    _objective(certificate, result, source)
    unfit = NOT_UNDER_SWAPPING if rules.swap is not None else ()
    claimed = _bounds(certificate, result, instance, cost, unfit, source) if goal.unit == "ms" else {}
    _recompute(certificate, instance, cost, [b for b in bound_names(name) if b not in unfit], name, claimed,
               time_limit_s)  # fmt: skip
    _lower_bound(certificate, result, claimed)
    _heuristics(certificate, instance, cost, rules, name, time_limit_s)
    _status(certificate, result, source)
    _exactness(certificate, result, instance, cost, rules)
    return certificate


def _key(what: str, result: Mapping[str, Any]) -> str:
    """Newer results show values of any unit, older ones times only."""
    return f"{what}_value" if f"{what}_value" in result else f"{what}_ms"


def _require_fields(result: Mapping[str, Any], source: str) -> None:
    for key in ("status", "objective", "bounds"):
        if key not in result:
            raise InputError("missing; every result has it", source=source, field=key)
    if result["status"] not in STATUSES:
        raise InputError(f"must be one of {', '.join(STATUSES)}", source=source, field="status",
                         value=result["status"])  # fmt: skip
    if not isinstance(result["objective"], str) or not isinstance(result["bounds"], list):
        raise InputError("objective must be a name and bounds a list", source=source)


def _number(data: Mapping[str, Any], key: str, source: str) -> float | None:
    value = data.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError("must be a number or null", source=source, field=key, value=value)
    return float(value)


def _schedule(
    certificate: Certificate, result: Mapping[str, Any], instance: Instance, rules: Rules, cost: CostModel, source: str
) -> Replay | None:
    """Replay the schedule; its times must be the replayed ones."""
    if result.get("schedule") is None:
        return None
    try:
        schedule, times = schedule_from_dict(result["schedule"], instance, source)
        run = replay(instance, schedule, rules=rules, cost=cost, claimed_ns=times)
    except (RuleError, InputError) as error:
        certificate.note("schedule", "refuted", str(error))
        return None
    claimed = result.get("batches")
    if claimed is not None and claimed != len(run.records):
        certificate.note("batches", "refuted", f"claims {claimed}, the schedule has {len(run.records)}")
    certificate.note("schedule", "confirmed", f"{len(run.records)} batches keep every rule; times are exact")
    return run


def _objective(certificate: Certificate, result: Mapping[str, Any], source: str) -> None:
    claimed = _number(result, _key("objective", result), source)
    value = certificate.shown(certificate.objective)
    if claimed is None and value is None:
        return
    same = claimed == value
    detail = f"claims {_text(claimed, certificate)}; replayed: {_text(value, certificate)}"
    certificate.note("objective", "confirmed" if same else "refuted", detail)


def _bounds(
    certificate: Certificate, result: Mapping[str, Any], instance: Instance, cost: CostModel, unfit: Sequence[str],
    source: str,
) -> dict[str, float]:  # fmt: skip
    """Check each bound the result lists by the numbers it comes with; what each claims, in ms."""
    claimed: dict[str, float] = {}
    for entry in result["bounds"]:
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            raise InputError("must be a list of bounds with name, value_ms and inputs", source=source, field="bounds")
        name, value = entry["name"], _number(entry, "value_ms", source)
        if value is None:
            raise InputError("missing", source=source, field=f"bounds.{name}.value_ms")
        claimed[name] = value
        if name in unfit:
            certificate.note(f"bound {name}", "open", "not proven where requests may be swapped")
            continue
        inputs = entry.get("inputs")
        try:
            proven = recheck(name, inputs if isinstance(inputs, Mapping) else {}, instance, cost)
        except ValueError as error:
            certificate.note(f"bound {name}", "refuted", str(error))
            continue
        if proven is None:
            certificate.note(f"bound {name}", "open", "carries nothing to recompute it from")
            continue
        _best(certificate, proven, name)
        holds = value <= ms_from_ticks(proven)
        detail = f"claims {value:,.6f} ms; recomputed exactly: {ms_from_ticks(proven):,.6f} ms"
        certificate.note(f"bound {name}", "confirmed" if holds else "refuted", detail)
    return claimed


def _best(certificate: Certificate, value: Ticks, name: str) -> None:
    if certificate.confirmed_bound is None or value > certificate.confirmed_bound:
        certificate.confirmed_bound, certificate.confirmed_by = value, name


def _recompute(
    certificate: Certificate, instance: Instance, cost: CostModel, names: Sequence[str], objective: str,
    claimed: Mapping[str, float], time_limit_s: float | None,
) -> None:  # fmt: skip
    """Compute all bounds anew; a listed one that the numbers did not settle is compared with its own."""
    for bound in iter_bounds(instance, cost, objective=objective, only=names, time_limit_s=time_limit_s):
        _best(certificate, bound.value_ticks, bound.name)
        for place, finding in enumerate(certificate.findings):
            if finding.claim == f"bound {bound.name}" and finding.verdict == "open":
                holds = claimed[bound.name] <= bound.value_ms
                detail = f"claims {claimed[bound.name]:,.6f} ms; computed anew: {bound.value_ms:,.6f} ms"
                certificate.findings[place] = Finding(finding.claim, "confirmed" if holds else "open", detail)


def _lower_bound(certificate: Certificate, result: Mapping[str, Any], claimed: Mapping[str, float]) -> None:
    """How much of the claimed lower bound is confirmed, and on whom the rest rests."""
    bound = certificate.claimed_bound
    if bound is None:
        return
    source = str(result.get("lower_bound_source"))
    if source in claimed and claimed[source] != bound:
        certificate.note("lower bound", "refuted", f"is not what its source claims, {source}: {claimed[source]!r}")
        return
    value = certificate.shown(certificate.objective)
    if value is not None and bound > value:
        detail = f"claims {_text(bound, certificate)}, above the schedule beside it"
        certificate.note("lower bound", "refuted", detail)
        return
    confirmed = certificate.shown(certificate.confirmed_bound) or 0.0
    if bound <= confirmed:
        certificate.note("lower bound", "confirmed", f"all of it, by {certificate.confirmed_by}")
        return
    if source in claimed:
        certificate.note("lower bound", "refuted", f"{source} gives {_text(confirmed, certificate)} at most here")
        return
    detail = f"up to {_text(confirmed, certificate)} by {certificate.confirmed_by} ({confirmed / bound:.1%}); "
    certificate.note("lower bound", "open", f"{detail}the rest, to {_text(bound, certificate)}, rests on {source}")


def _heuristics(
    certificate: Certificate, instance: Instance, cost: CostModel, rules: Rules, objective: str,
    time_limit_s: float | None,
) -> None:  # fmt: skip
    """No schedule may lie below a lower bound: the heuristic ones are tried, one after the other only without any."""
    if certificate.claimed_bound is None:
        return
    goal = load_objective(objective)
    until = math.inf if time_limit_s is None else time.monotonic() + time_limit_s
    for name, run in heuristic_schedules(instance, cost, rules, lambda: time.monotonic() > until,
                                         serial_too=certificate.objective is None):  # fmt: skip
        value = certificate.shown(goal.value(run, cost))
        if value is not None and value < certificate.claimed_bound:
            certificate.note("lower bound", "refuted", f"{name} makes a schedule of {_text(value, certificate)}")
            return


def _status(certificate: Certificate, result: Mapping[str, Any], source: str) -> None:
    status = result["status"]
    value, bound = certificate.shown(certificate.objective), certificate.claimed_bound
    gap = _number(result, "gap", source)
    if value and bound is not None and gap is not None and abs(gap - (value - bound) / value) > 1e-9:
        certificate.note("gap", "refuted", f"claims {gap:.6%}, the values give {(value - bound) / value:.6%}")
    if status == "OPTIMAL" and (value is None or value != bound):
        certificate.note("status", "refuted", "OPTIMAL needs a schedule whose objective is the lower bound")
    elif status == "FEASIBLE" and value is None:
        certificate.note("status", "refuted", "FEASIBLE needs a valid schedule")
    elif status in ("INFEASIBLE", "UNKNOWN") and result.get("schedule") is not None:
        certificate.note("status", "refuted", f"{status}, yet there is a schedule")
    elif status == "INFEASIBLE":
        certificate.note("status", "open", f"INFEASIBLE rests on {result.get('solver')}")
    elif status == "OPTIMAL":
        settled = bound is not None and bound <= (certificate.shown(certificate.confirmed_bound) or 0.0)
        whose = result.get("lower_bound_source")
        words = "the confirmed bound is reached" if settled else f"the bound rests on {whose}"
        certificate.note("status", "confirmed" if settled else "open", f"OPTIMAL: {words}")


def _exactness(
    certificate: Certificate, result: Mapping[str, Any], instance: Instance, cost: CostModel, rules: Rules
) -> None:  # fmt: skip
    """A solver's own bound counts only where what it searched holds an optimal schedule."""
    solver, own = result.get("solver"), result.get("lower_bound_source") == result.get("solver")
    if solver is None or not own:
        return
    if result.get("exact") is not True:
        certificate.note("exact", "refuted", f"the bound is {solver}'s, which does not claim to search all schedules")
    elif solver == "search" or (solver == "portfolio" and str(result.get("solver_version")).startswith("portfolio")):
        try:
            space = build_space(instance, cost, rules)
        except InputError as error:
            certificate.note("exact", "refuted", str(error))
            return
        certificate.note("exact", "confirmed" if space.exact else "refuted", space.exact_reason)


def _text(value: float | None, certificate: Certificate) -> str:
    return "none" if value is None else f"{value:,.6f} {certificate.unit}"


def lines(certificate: Certificate) -> Iterator[str]:
    """One line per finding, and the verdict."""
    width = max((len(f.claim) for f in certificate.findings), default=0)
    for finding in certificate.findings:
        yield f"{finding.verdict:<10} {finding.claim:<{width}}  {finding.detail}"
    words = {"confirmed": "confirmed: nothing rests on the solver", "refuted": "refuted",
             "open": "not refuted; what is open rests on the solver"}  # fmt: skip
    yield words[certificate.verdict()]
