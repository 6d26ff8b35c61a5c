"""The server: continuous batching with a fixed number of slots, whose policy may interrupt decodes for urgent requests.

A request in a slot has its peak KVs (I + O - 1) allocated, so memory never runs out midway: whoever is preempted was
interrupted on purpose. The queue is ordered by class, then arrival. In each batch everyone in a slot decodes, and fills
share what is left of the token budget, most urgent first.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

from sim.instance import Instance
from sim.interrupts.policy import CHECKPOINT, PAUSE, RECOMPUTE, Choice, Mechanism, Policy, View
from sim.replay import BatchRecord, State, SwapLink
from sim.schedule import Batch


@dataclass(frozen=True, slots=True)
class Interrupt:
    """One interruption, as it happened.

    Parameters
    ----------
    kv_tokens, generated
        Of the victim at that moment.
    resumes
        Whether it will be resumed; otherwise it is abandoned.
    """

    at_ticks: int
    request: int
    for_request: int
    mechanism: Mechanism
    kv_tokens: int
    generated: int
    resumes: bool


@dataclass(slots=True)
class _Plan:
    """What a batch under construction does beside processing."""

    preempt: list[int] = field(default_factory=list)
    swap_out: list[int] = field(default_factory=list)
    swap_in: list[int] = field(default_factory=list)
    interrupted: list[int] = field(default_factory=list)


class InterruptServer:
    """A scheduler for `sim.engine.simulate`.

    Parameters
    ----------
    instance
        Needs ``max_num_seqs``, the number of slots.
    policy
        Decides about interruptions.
    link
        Over which checkpoints travel; the one in the rules of the run.
    resumes
        Per request and interruption (cyclic), whether the request is still wanted afterwards; None: always.
    resume_probability
        What the policy is told about it.
    """

    def __init__(
        self,
        instance: Instance,
        policy: Policy,
        link: SwapLink,
        *,
        resumes: tuple[tuple[bool, ...], ...] | None = None,
        resume_probability: float = 1.0,
    ) -> None:
        if instance.max_num_seqs is None:
            raise ValueError("the server needs max_num_seqs, its number of slots")
        self.instance, self.policy, self.link = instance, policy, link
        self.slots = instance.max_num_seqs
        self.resumes, self.resume_probability = resumes, resume_probability
        self.waiting: list[tuple[int, int, int]] = []
        """(priority, arrival, request) in order."""
        self.running: list[int] = []
        self.allocated: dict[int, int] = {}
        """Blocks per request that holds or will hold KVs: in a slot or paused."""
        self.used_blocks = 0
        self.interrupts: list[Interrupt] = []
        self._leaving: list[int] = []
        self._times_interrupted = [0] * len(instance.requests)

    def add(self, i: int, state: State) -> None:
        """A request arrives."""
        request = self.instance.requests[i]
        bisect.insort(self.waiting, (request.priority, request.arrival_ns, i))

    def update(self, record: BatchRecord, state: State) -> None:
        """Free the slots and memory of what the batch completed."""
        for i in record.completed:
            self.running.remove(i)
            self._free(i)

    def form_batch(self, state: State) -> Batch | None:
        """Admit, interrupting where the policy says so; then decode and fill."""
        plan = _Plan()
        abandon, self._leaving = self._leaving, []
        self._admit(state, plan)
        self._requeue(plan, state)
        process = self._process(state, plan)
        if not process and not abandon:
            return None
        return Batch(tuple(process), tuple(plan.preempt), None, tuple(plan.swap_out), tuple(plan.swap_in),
                     tuple(abandon))  # fmt: skip

    def _admit(self, state: State, plan: _Plan) -> None:
        """Into slots in queue order; behind one that does not fit only paused requests pass, who need no memory."""
        stays: list[tuple[int, int, int]] = []
        blocked = False
        for place, entry in enumerate(self.waiting):
            if len(self.running) >= self.slots and entry[0] > 0:
                stays += self.waiting[place:]  # without a free slot only urgent requests can get in
                break
            i = entry[2]
            paused = i in self.allocated
            if (not blocked or paused) and not self._fits(i) and entry[0] == 0 and not blocked:
                self._interrupt_for(i, state, plan)
            if (blocked and not paused) or not self._fits(i):
                blocked = True
                stays.append(entry)
                continue
            self.running.append(i)
            self._allocate(i)
            if state.host_kv[i]:
                plan.swap_in.append(i)
        self.waiting = stays

    def _fits(self, i: int) -> bool:
        return len(self.running) < self.slots and self._memory_lacking(i) <= 0

    def _memory_lacking(self, i: int) -> int:
        """Blocks short of this request's peak; at most 0 if it fits."""
        peak = self.instance.blocks(self.instance.requests[i].peak_kv_tokens)
        return self.used_blocks + peak - self.allocated.get(i, 0) - self.instance.kv_blocks

    def _allocate(self, i: int) -> None:
        if i not in self.allocated:
            self.allocated[i] = self.instance.blocks(self.instance.requests[i].peak_kv_tokens)
            self.used_blocks += self.allocated[i]

    def _free(self, i: int) -> None:
        self.used_blocks -= self.allocated.pop(i)

    def _interrupt_for(self, urgent: int, state: State, plan: _Plan) -> None:
        """Ask the policy for victims until the urgent request fits; nobody is touched if it gives up before."""
        chosen: list[Choice] = []
        taken: set[int] = set()
        lacking, slots_lacking = self._memory_lacking(urgent), len(self.running) + 1 - self.slots
        while lacking > 0 or slots_lacking > 0:
            choice = self.policy.choose(self._view(urgent, state, taken, lacking > 0))
            if choice is None:
                return
            victim, mechanism = choice
            if victim in taken or not self._may_be_interrupted(victim, urgent, state):
                raise ValueError(f"{self.policy.criterion}: chose request {victim}, which is no candidate")
            chosen.append(choice)
            taken.add(victim)
            slots_lacking -= 1
            if mechanism != PAUSE:
                lacking -= self.allocated[victim]
        for victim, mechanism in chosen:
            self._interrupt(victim, mechanism, urgent, state, plan)

    def _view(self, urgent: int, state: State, taken: set[int], needs_memory: bool) -> View:
        candidates = [i for i in self.running if i not in taken and self._may_be_interrupted(i, urgent, state)]
        running = [i for i in self.running if i not in taken]
        return View(state, self.link, urgent, candidates, running, needs_memory,
                    self.used_blocks / self.instance.kv_blocks, self.resume_probability)  # fmt: skip

    def _may_be_interrupted(self, i: int, urgent: int, state: State) -> bool:
        requests = self.instance.requests
        return requests[i].priority > requests[urgent].priority and state.ready[i] and state.host_kv[i] == 0

    def _interrupt(self, victim: int, mechanism: Mechanism, urgent: int, state: State, plan: _Plan) -> None:
        self.running.remove(victim)
        if mechanism != PAUSE:
            self._free(victim)
        if mechanism == CHECKPOINT:
            plan.swap_out.append(victim)
        elif mechanism == RECOMPUTE:
            plan.preempt.append(victim)
        plan.interrupted.append(victim)
        fates = None if self.resumes is None else self.resumes[victim]
        resumes = fates is None or fates[self._times_interrupted[victim] % len(fates)]
        self._times_interrupted[victim] += 1
        self.interrupts.append(Interrupt(state.now_ticks, victim, urgent, mechanism, state.kv[victim],
                                         state.generated[victim], resumes))  # fmt: skip

    def _requeue(self, plan: _Plan, state: State) -> None:
        """Who was interrupted waits again in its class, or leaves with the next batch."""
        for event in self.interrupts[len(self.interrupts) - len(plan.interrupted) :]:
            if event.resumes:
                self.add(event.request, state)
            else:
                self._leaving.append(event.request)
                if event.mechanism == PAUSE:
                    self._free(event.request)

    def _process(self, state: State, plan: _Plan) -> list[tuple[int, int]]:
        back, ready = plan.swap_in, state.ready
        decodes = [i for i in self.running if ready[i] or i in back]
        if len(decodes) == len(self.running):
            return [(i, 1) for i in decodes]
        fills = sorted((i for i in self.running if not ready[i] and i not in back),
                       key=lambda i: self.instance.requests[i].priority)  # fmt: skip
        budget = self.instance.token_budget - len(decodes)
        process = [(i, 1) for i in decodes]
        for i in fills:
            tokens = min(budget, state.remaining_fill(i))
            if tokens > 0:
                process.append((i, tokens))
                budget -= tokens
        return process
