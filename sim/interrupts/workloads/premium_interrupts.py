"""Half of the requests are premium, as long as everyone else's chats."""

from __future__ import annotations

from sim.interrupts.workload import SHAREGPT, Workload, mix

WORKLOAD = Workload(mix(0.5, 0.3, 0.2, urgent_lengths=SHAREGPT))
