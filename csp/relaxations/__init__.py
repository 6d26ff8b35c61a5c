"""Lower bounds that need no solver: they cut and prune in csp, and bounds.lower reports and adds to them."""

from csp.relaxations.batches import LeastBatches, least_batches
from csp.relaxations.combinatorial import combinatorial_bounds, makespan_bound
from csp.relaxations.load import without_shared_prefixes

__all__ = ["LeastBatches", "combinatorial_bounds", "least_batches", "makespan_bound", "without_shared_prefixes"]
