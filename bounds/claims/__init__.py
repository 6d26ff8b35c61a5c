"""Claims of the paper (Kim et al., arXiv:2411.07447), one file per section or experiment.

A file defines

``SECTION``
    Section of the paper, as text ("5.4").
``cells(effort)``
    What has to be measured for an effort ("quick" or "full"): a list of flat dicts, each one call of ``measure``.
``measure(**cell)``
    Runs one cell in any process and returns its rows: flat dicts of numbers and text. No side effects.
``judge(rows)``
    Turns all rows into `Verdict`\\ s. What a verdict says comes from the rows alone.
``figures(rows)`` (optional)
    Yields (name, matplotlib figure).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from sim.registry import load, names

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Effort = Literal["quick", "full"]
Cell = Mapping[str, Any]
Row = dict[str, Any]

REPRODUCED, DIRECTION, NOT_REPRODUCED, NOT_TESTABLE = (
    "reproduced",
    "direction only",
    "not reproduced",
    "not testable here",
)


NO_SCHEDULE = "No schedule is compared here, so there is nothing to bound: the claim is about a formula of the costs."


ORDER = (REPRODUCED, DIRECTION, NOT_REPRODUCED)
"""Verdicts from the most favourable."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One line of the report.

    Parameters
    ----------
    claim
        What the paper states.
    section
        Where.
    paper
        Its figure.
    ours
        Ours, with the cost model where it matters.
    verdict
        "reproduced", "direction only", "not reproduced" or "not testable here".
    reason
        Why it differs, or what it rests on.
    plain
        One paragraph in plain words for an engineer.
    left_on_table
        What the certified lower bound says about the experiment, or why none applies.
    other_costs
        Ours and the verdict under the other cost models; None where costs play no part.
    """

    claim: str
    section: str
    paper: str
    ours: str
    verdict: str
    reason: str
    plain: str
    left_on_table: str
    other_costs: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)


class Claim(Protocol):
    """A module of this package."""

    SECTION: str

    def cells(self, effort: Effort) -> Sequence[Cell]:
        """What to measure."""

    def measure(self, **cell: Any) -> list[Row]:
        """Measure one cell."""

    def judge(self, rows: Sequence[Row]) -> list[Verdict]:
        """Word the verdicts."""


def claim_names() -> list[str]:
    """Claims in the order of the paper's sections."""
    return sorted(names("bounds.claims"), key=lambda name: [int(part) for part in load_claim(name).SECTION.split(".")])


def load_claim(name: str) -> Claim:
    """A claim by its file name.

    Raises
    ------
    sim.errors.InputError
        If there is no such claim.
    """
    return cast(Claim, load("bounds.claims", name, what="claim"))


def claim_figures(name: str, rows: Sequence[Row]) -> Iterator[tuple[str, Figure]]:
    """The figures a claim draws; none where it draws none."""
    draw = getattr(load_claim(name), "figures", None)
    if draw is not None:
        yield from draw(rows)


def cost_model_of(row: Row) -> str:
    """Whose rows are judged together by `across`."""
    return str(row["cost_model"])


def across(
    rows: Sequence[Row], judge_one: Callable[[list[Row]], list[Verdict]], key: Callable[[Row], str] = cost_model_of
) -> list[Verdict]:
    """Judge the rows of every cost model alike: the first one's verdicts, with what the others say beside them.

    Parameters
    ----------
    rows
        Those of the published cost model come first.
    judge_one
        Words the verdicts of one cost model's rows, always the same number of them.
    key
        What tells cost models apart, where a claim is about several machines.
    """
    models = list(dict.fromkeys(map(key, rows)))
    judged = [judge_one([row for row in rows if key(row) == model]) for model in models]
    lines = []
    for same in zip(*judged, strict=True):
        beside = [f"{model}: {verdict.ours} ({verdict.verdict})" for model, verdict in zip(models, same, strict=True)]
        left = dict.fromkeys(verdict.left_on_table for verdict in same)
        if len(left) > 1:
            left = dict.fromkeys(f"{model}: {v.left_on_table}" for model, v in zip(models, same, strict=True))
        ours = f"{models[0]}: {same[0].ours}"
        lines.append(
            replace(same[0], ours=ours, other_costs="\n".join(beside[1:]) or None, left_on_table="\n".join(left))
        )
    return lines


def grade(measured: float, published: float, *, tolerance: float = 0.15) -> str:
    """Compare a ratio or a percentage with the published one.

    "reproduced" within a relative tolerance, "direction only" on the same side of nothing (sign for differences, 1 for
    ratios is the caller's: pass differences), else "not reproduced".

    >>> grade(0.16, 0.17), grade(0.05, 0.17), grade(-0.02, 0.17)
    ('reproduced', 'direction only', 'not reproduced')
    """
    if abs(measured - published) <= tolerance * abs(published):
        return REPRODUCED
    return DIRECTION if measured * published > 0 else NOT_REPRODUCED


def times(ratio: float) -> str:
    """A ratio for showing.

    >>> times(1.734), times(1016.4)
    ('1.73x', '1,016x')
    """
    return f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.3g}x"


def worst(verdicts: Sequence[str]) -> str:
    """The least favourable of several verdicts.

    >>> worst(["reproduced", "direction only"])
    'direction only'
    """
    return max(verdicts, key=ORDER.index)
