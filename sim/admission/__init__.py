"""Admission rules, one file each: whether a waiting request may start.

A file defines ``RULE``, a class that `Admission` describes. The scheduler asks it for the head of its queue; requests
that do not fit in memory are never admitted, and a request that would be alone always is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from sim.registry import load
from sim.replay import BatchRecord, State

if TYPE_CHECKING:
    from sim.instance import Instance
    from sim.schedulers._memory import Memory


@dataclass(frozen=True, slots=True)
class AdmissionParameters:
    """Parameters of the admission rules.

    Parameters
    ----------
    watermark
        Share of all blocks to keep free (``watermark``).
    initial_ratio, least_ratio, decay_batches
        The reservation ratio, where it falls to, and in how many batches (``ratio``).
    """

    watermark: float = 0.01
    initial_ratio: float = 0.7
    least_ratio: float = 0.1
    decay_batches: int = 600


class Admission(Protocol):
    """What a scheduler asks of an admission rule (`sim.admission.asis.AsIs` describes the attribute)."""

    prefill_only: bool

    def __init__(self, instance: Instance, parameters: AdmissionParameters) -> None: ...

    def hold_tokens(self, i: int, state: State) -> int:
        """KVs whose blocks are allocated at admission; at least the whole sequence known so far."""

    def allows(self, i: int, state: State, memory: Memory, running: list[int]) -> bool:
        """Whether request i may start beside ``running``, given that its blocks are free."""

    def update(self, record: BatchRecord, state: State) -> None:
        """A batch has been carried out."""


def load_admission(name: str, instance: Instance, parameters: AdmissionParameters) -> Admission:
    """A fresh admission rule by its name.

    Raises
    ------
    sim.errors.InputError
        If there is no such rule.
    """
    return cast(Admission, load("sim.admission", name, what="admission rule").RULE(instance, parameters))
