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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
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
        What the certified lower bound says about the experiment; None where none applies.
    """

    claim: str
    section: str
    paper: str
    ours: str
    verdict: str
    reason: str
    plain: str
    left_on_table: str | None = None

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


def worst(verdicts: Sequence[str]) -> str:
    """The least favourable of several verdicts.

    >>> worst(["reproduced", "direction only"])
    'direction only'
    """
    return max(verdicts, key=[REPRODUCED, DIRECTION, NOT_REPRODUCED].index)
