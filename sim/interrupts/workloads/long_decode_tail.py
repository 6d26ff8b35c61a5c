"""Output lengths with a heavy tail."""

from __future__ import annotations

from sim.interrupts.workload import HEAVY_TAIL, Workload, mix

WORKLOAD = Workload(mix(0.2, 0.5, 0.3, outputs=HEAVY_TAIL))
