"""First come, first served; preempted requests go to the front."""

from __future__ import annotations

rank = None
