"""KV memory is scarce, many requests are urgent, and arrivals exceed what the server can do."""

from __future__ import annotations

from sim.interrupts import constants
from sim.interrupts.workload import Workload, mix

WORKLOAD = Workload(
    mix(0.4, 0.35, 0.25),
    load=1.5,
    kv_capacity_tokens=constants.KV_PRESSURE_CAPACITY_TOKENS,
)
