"""Look-ahead: decode first, admits while the forecast of all KVs stays below M (knows output lengths); C = 4096."""

from __future__ import annotations

from dataclasses import replace

from sim.instance import Instance
from sim.schedulers import Options
from sim.schedulers.sarathi_cs import SarathiContextSize


class LookAhead(SarathiContextSize):
    """Sarathi_{C=S} with look-ahead admission; the same as ``sarathi_cs_lookahead``."""

    def __init__(self, instance: Instance, options: Options) -> None:
        if options.admission == "asis":
            options = replace(options, admission="lookahead")
        super().__init__(instance, options)


SCHEDULER = LookAhead
