"""Interrupted requests nearly always resume."""

from __future__ import annotations

from sim.interrupts.workload import Workload, mix

WORKLOAD = Workload(mix(0.2, 0.5, 0.3), resume_probability=0.9)
