"""MC-SF of Jaillet et al. (arXiv:2502.07115): shortest output first, admitted while every future completion still fits.

The waiting requests are tried in order of output length until the first whose admission would, at the completion of
some running request, exceed the memory; nobody is preempted and everybody running is processed in every batch. Knows
output lengths. C = 4096.
"""

from __future__ import annotations

from dataclasses import replace

from sim.instance import Instance
from sim.schedulers import Options
from sim.schedulers.lookahead import LookAhead


class McSf(LookAhead):
    """Look-ahead admission from a queue ordered by output length."""

    def __init__(self, instance: Instance, options: Options) -> None:
        if options.queue == "fcfs":
            options = replace(options, queue="shortest_output")
        super().__init__(instance, options)


SCHEDULER = McSf
