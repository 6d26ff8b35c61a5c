"""Rounds: every batch takes one unit and whoever starts runs to its end, so that start times are all there is.

The setting of Jaillet et al. (arXiv:2502.07115) with all requests present at the start: good schedules by local search
over orders (`local_search`), lower bounds on the total completion time by Lagrangian relaxation: of which requests can
run together (`states`), or, where memory is too large for that, of memory rows (`bound`).
"""
