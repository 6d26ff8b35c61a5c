"""Search over states (tokens generated, resident or not, per request): what `csp.solvers.search` runs.

`space` counts an instance into integer tables, `bounds` says what every way on from a state still costs, `dominance`
which ways on need not be tried and why, `best_first` proves, `beam` finds good schedules fast. Compiled inner loops are
in files starting with ``_``, so that importing this package does not load the compiler.
"""
