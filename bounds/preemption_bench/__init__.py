"""The decode-preemption benchmark: policies x workloads x seeds, claims checked against an earlier benchmark's.

`cases` runs one case, `runner` all of them; `tables`, `claims` and `breakeven` draw conclusions; `optimum` and `floors`
say what is possible; `plots` and `report` show it. Policies, workloads and constants live in `sim.interrupts`.
"""
