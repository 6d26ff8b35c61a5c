"""What the schedulers of Kim et al.'s simulator share: queues, memory accounting, admission and eviction.

Memory is checked only while a batch is formed, request by request, without look-ahead: a decode needs one free slot, a
new request its whole prefill at once (chunked or not). Victims go to the front of the waiting queue one by one, so the
last victim stands first. Requests already placed in a batch are never its victims.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, fields

from sim.admission import AdmissionParameters, load_admission
from sim.admission.pf import PreemptionFree
from sim.cost.model import CostModel, Features
from sim.cost.swap import DEFAULT_LATENCY_US, swap_link
from sim.instance import Instance
from sim.preemption import load_victim_rule
from sim.queues import load_rank
from sim.replay import BatchRecord, State, SwapLink
from sim.schedule import Batch
from sim.schedulers import Options
from sim.schedulers._memory import Memory
from sim.schedulers._steady import decode_steps_in_memory, hold_decoded, keeps_order, stays_blocked


@dataclass(frozen=True, slots=True)
class Parameters(AdmissionParameters):
    """Parameters of the paper's schedulers.

    Parameters
    ----------
    token_budget
        C of this scheduler; 0 for its own default. The smaller of this and the instance's is in force.
    seed
        Of the random victim rule.
    swap_link, swap_latency_us, swap_overlap
        The way to host memory (`sim.cost.swap.swap_link`); the GPU's own link by default.
    """

    token_budget: int = 0
    seed: int = 0
    swap_link: str = ""
    swap_latency_us: int = DEFAULT_LATENCY_US
    swap_overlap: bool = False


class PaperScheduler:
    """Base of the paper's schedulers.

    Parameters
    ----------
    instance
        What is scheduled.
    options
        Rules for victims, admission, queue and refills, and parameters.
    """

    TOKEN_BUDGET = 4096
    CHUNKED = False
    PREFILL_ONLY = False

    def __init__(self, instance: Instance, options: Options) -> None:
        self.parameters = parameters = options.read(Parameters())
        self.instance, self.options = instance, options
        self.token_budget = min(parameters.token_budget or self.TOKEN_BUDGET, instance.token_budget)
        self.max_running = instance.max_num_seqs or len(instance.requests)
        self.order = load_victim_rule(options.victim, parameters.seed)
        self.rank = load_rank(options.queue)
        self.admission = load_admission(
            options.admission, instance, AdmissionParameters(**{f.name: getattr(parameters, f.name)
                                                               for f in fields(AdmissionParameters)}),
        )  # fmt: skip
        self.admission.prefill_only = self.PREFILL_ONLY
        self.refill = options.refill
        self.memory = Memory(instance)
        self.waiting: deque[int] = deque()
        self.running: list[int] = []
        self._process: list[tuple[int, int]] = []
        self._preempt: list[int] = []
        self._swap_out: list[int] = []
        self._swap_in: list[int] = []
        self._budget = 0

    @property
    def needs_swap(self) -> bool:
        """Whether victims may go to host memory, so that the rules must have a link."""
        return self.refill != "recompute"

    def swap_link(self, cost: CostModel) -> SwapLink:
        """The link to use where the rules name none."""
        p = self.parameters
        return swap_link(cost.name, p.swap_link, latency_us=p.swap_latency_us, overlap=p.swap_overlap)

    def add(self, i: int, state: State) -> None:
        """A request arrives."""
        self.waiting.append(i)

    def form_batch(self, state: State) -> Batch | None:
        """The next batch, or None when there is nothing to run."""
        self._process, self._preempt, self._swap_out, self._swap_in = [], [], [], []
        self._budget = self.token_budget
        if self.rank is not None:
            rank = self.rank
            self.waiting = deque(sorted(self.waiting, key=lambda i: rank(i, state)))
        self.fill(state)
        if not (self._process or self._preempt or self._swap_out):
            return None
        return Batch(tuple(self._process), tuple(self._preempt), swap_out=tuple(self._swap_out),
                     swap_in=tuple(self._swap_in))  # fmt: skip

    def fill(self, state: State) -> None:
        """Place requests with `admit_waiting` and `run_running`; each scheduler's own order."""
        raise NotImplementedError

    def update(self, record: BatchRecord, state: State) -> None:
        """Forget what the batch completed."""
        for i in record.completed:
            self.running.remove(i)
            self.memory.release(i)
        self.admission.update(record, state)

    def unchanged_batches(self, state: State) -> int:
        """See `sim.scheduling.Scheduler`; only if the batch decoded everybody."""
        steady = keeps_order(self.order, self.instance) and stays_blocked(self.admission, bool(self.waiting))
        if not steady or self.needs_swap or len(self._process) < len(self.running):
            return 0
        reserved = type(self.admission) is PreemptionFree
        return decode_steps_in_memory(self.memory, len(self.running), reserved=reserved)

    def repeated(self, state: State) -> None:
        """The batch has been repeated."""
        hold_decoded(self.memory, self.running, state)

    def place(self, i: int, tokens: int) -> None:
        """Put a request into the batch."""
        self._process.append((i, tokens))
        self._budget -= tokens

    def preempted(self) -> bool:
        """Whether this batch has a victim so far."""
        return bool(self._preempt or self._swap_out)

    def admit_waiting(self, state: State) -> list[int]:
        """Admit from the head of the queue while memory and budget last; the requests admitted, in order."""
        admitted: list[int] = []
        while self.waiting and self._budget > 0 and len(self.running) + len(admitted) < self.max_running:
            i = self.waiting[0]
            tokens = state.remaining_fill(i) - state.host_kv[i]
            hold = self.admission.hold_tokens(i, state)
            beside = [*self.running, *admitted]
            if (
                self.memory.missing(i, hold) > self.memory.free_blocks
                or (tokens > self._budget and not self.CHUNKED)
                or (beside and not self.admission.allows(i, state, self.memory, beside))
            ):
                break
            self.waiting.popleft()
            self._admit(i, state)
            admitted.append(i)
        return admitted

    def _admit(self, i: int, state: State) -> None:
        """Start a request that fits: allocate, bring swapped KVs back, fill."""
        self.memory.hold(i, self.admission.hold_tokens(i, state))
        if state.host_kv[i]:
            self._swap_in.append(i)
        self.place(i, min(state.remaining_fill(i) - state.host_kv[i], self._budget))

    def run_decodes(self, left: deque[int], state: State) -> tuple[list[int], list[int]]:
        """Decode in list order, evicting from the list's end.

        Parameters
        ----------
        left
            The running requests in order; what the budget leaves over stays in it.

        Returns
        -------
        Requests that decode, and fills under way that were met on the way and are thus safe from eviction.
        """
        decodes, fills = [], []
        while left and self._budget > 0:
            i = left.popleft()
            if not state.ready[i]:
                fills.append(i)
            elif self._make_room(i, left, state):
                self.place(i, 1)
                decodes.append(i)
        return decodes, fills

    def _make_room(self, i: int, behind: deque[int], state: State) -> bool:
        """Find a slot for a decode step, evicting the last request behind it, or itself when none is left."""
        while self.memory.missing(i, state.kv[i] + 1) > self.memory.free_blocks:
            victim = behind.pop() if behind else i
            self._evict(victim, state)
            if victim == i:
                return False
        self.memory.hold(i, state.kv[i] + 1)
        return True

    def _evict(self, i: int, state: State) -> None:
        self.memory.release(i)
        self.waiting.appendleft(i)
        if self._swaps(i, state):
            self._swap_out.append(i)
        else:
            self._preempt.append(i)

    def _swaps(self, i: int, state: State) -> bool:
        """Whether this victim's KVs go to host memory: if there are any and, when asked, that is the faster way."""
        if self.refill == "recompute" or state.rules.swap is None or not state.kv[i]:
            return False
        if self.refill == "swap":
            return True
        m = state.kv[i]
        refill = state.cost.batch_ticks(Features(1, 1, 0, 1, 0, m + 1, (m + 1) ** 2, 0, 0))
        decode = state.cost.batch_ticks(Features(1, 0, 1, 0, 1, 1, 0, 0, m))
        return 2 * state.rules.swap.transfer_ticks(m) < refill - decode
