"""The original benchmark's statements, each with its figure, ours with an interval, and a verdict computed from ours.

One file a topic; a file defines ``claims(evidence) -> list[Claim]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from bounds.preemption_bench.statistics import Interval
from bounds.preemption_bench.tables import Results
from sim.registry import load, names

if TYPE_CHECKING:
    import pandas as pd

REPRODUCED, DIRECTION, NOT, UNDECIDED, UNTESTED = (
    "reproduced", "direction only", "not reproduced", "undecided", "not tested",
)  # fmt: skip

CHECKPOINT_POLICIES = ("oldest_checkpoint", "longest_remaining_checkpoint", "best_effort_first_checkpoint")
ALWAYS_PREEMPT = (*CHECKPOINT_POLICIES, "oldest_recompute")
"""The original's policies that interrupt whenever an urgent request finds no room."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What verdicts are computed from."""

    results: Results
    breakeven: pd.DataFrame
    cost_model: str


@dataclass(frozen=True, slots=True)
class Claim:
    """One row of the claims table.

    Parameters
    ----------
    original
        The figure it was made with.
    ours
        Ours, with a 95 % interval over seeds where it is a mean.
    why
        Where we differ: what the difference comes from.
    """

    statement: str
    original: str
    ours: str
    verdict: str
    why: str = ""


def untested(statement: str, original: str) -> Claim:
    """The workloads or policies of a claim were not run."""
    return Claim(statement, original, "-", UNTESTED)


def show(found: Interval | None, unit: str = "") -> str:
    """An interval for a table; "-" for unknown."""
    return "-" if found is None else f"{found}{unit}"


def all_claims(evidence: Evidence) -> list[Claim]:
    """Every topic's claims, in the original's order."""
    topics = [load("bounds.preemption_bench.claims", name) for name in names("bounds.preemption_bench.claims")]
    topics.sort(key=lambda module: module.POSITION)
    return [claim for module in topics for claim in module.claims(evidence)]


def claims_table(claims: Sequence[Claim]) -> pd.DataFrame:
    """claims.csv."""
    import pandas as pd

    return pd.DataFrame([asdict(claim) for claim in claims])
