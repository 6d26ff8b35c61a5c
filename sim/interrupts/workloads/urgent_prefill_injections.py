"""Frequent short urgent requests."""

from __future__ import annotations

from sim.interrupts.workload import Workload, mix

WORKLOAD = Workload(mix(0.6, 0.25, 0.15))
