"""What an interrupt policy sees and answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from sim.cost.model import Features
from sim.registry import load, names
from sim.replay import State, SwapLink

Mechanism = Literal["checkpoint", "recompute", "pause"]
"""checkpoint: KVs to host memory, back on resume. recompute: KVs dropped, refilled on resume. pause: KVs stay, only the
slot is given up."""
CHECKPOINT: Mechanism = "checkpoint"
RECOMPUTE: Mechanism = "recompute"
PAUSE: Mechanism = "pause"


@dataclass(frozen=True, slots=True)
class View:
    """The server at the moment an urgent request finds no room.

    Parameters
    ----------
    urgent
        The request that waits.
    candidates
        Less urgent requests that are decoding, longest in their slot first; whoever was chosen already is left out.
    running
        All requests in slots.
    needs_memory
        Whether the urgent request lacks KV memory (otherwise only a slot).
    kv_used
        Share of KV memory that is allocated, 0 to 1.
    resume_probability
        Of an interrupted request, as the operator knows it from experience.
    """

    state: State
    link: SwapLink
    urgent: int
    candidates: Sequence[int]
    running: Sequence[int]
    needs_memory: bool
    kv_used: float
    resume_probability: float

    def priority(self, i: int) -> int:
        """0 urgent, 1 standard, 2 best effort."""
        return self.state.instance.requests[i].priority

    def remaining_tokens(self, i: int) -> int:
        """Output tokens still to come: only policies that know lengths may ask."""
        return self.state.outputs[i] - self.state.generated[i]

    def decode_step_ticks(self) -> int:
        """One decode step of everyone in a slot, the urgent request's slot not counted."""
        reads = sum(self.state.kv[i] for i in self.running)
        n = len(self.running)
        return self.state.cost.batch_ticks(Features(1, 0, 1, 0, n, n, 0, 0, reads))

    def checkpoint_ticks(self, i: int) -> int:
        """Moving this request's KVs one way."""
        return self.link.transfer_ticks(self.state.kv[i])

    def refill_ticks(self, i: int) -> int:
        """What refilling this request adds to a decode step of the others, once the next token counts as due anyway."""
        tokens = self.state.sequence_tokens(i)
        n = len(self.running) - 1
        reads = sum(self.state.kv[r] for r in self.running if r != i)
        batch = self.state.cost.batch_ticks
        refill = batch(Features(1, 1, int(n > 0), 1, n, n + tokens, tokens * tokens, 0, reads))
        return refill - batch(Features(1, 0, 1, 0, n + 1, n + 1, 0, 0, reads + tokens - 1))

    def expected_overhead_ticks(self, i: int, mechanism: Mechanism) -> float:
        """Expected cost of interrupting: out now, and the way back if the request is still wanted."""
        if mechanism == CHECKPOINT:
            return self.checkpoint_ticks(i) * (1 + self.resume_probability)
        return self.refill_ticks(i) * self.resume_probability if mechanism == RECOMPUTE else 0.0


Choice = tuple[int, Mechanism]
ChooseVictim = Callable[[View], Choice | None]


@dataclass(frozen=True, slots=True)
class Policy:
    """An interrupt policy.

    Parameters
    ----------
    kind
        "baseline", "heuristic" or "oracle" (knows output lengths).
    criterion
        Whom it interrupts, in words.
    mechanism
        Mechanism it uses, in words.
    choose
        One victim and how, or None to let the urgent request wait. Asked again while the victims so far do not suffice;
        if it gives up in between, nobody is interrupted.
    """

    kind: str
    criterion: str
    mechanism: str
    choose: ChooseVictim


def load_policy(name: str) -> Policy:
    """A policy by its file name.

    Raises
    ------
    sim.errors.InputError
        If there is none of that name.
    """
    policy: Policy = load("sim.interrupts.policies", name, what="policy").POLICY
    return policy


def policy_names() -> list[str]:
    """Names of all policies."""
    return names("sim.interrupts.policies")
