"""Which batches prefill: lower bounds by a tree over the flags of batches, each node a Lagrangian relaxation.

Fix the number of batches J, and for some of them whether they decode only, prefill only, or do both. Give each batch a
price >= 0 per block of memory. Then every request chooses its way through the batches alone (wait, fill, decode, hold,
be evicted; a shortest path over tokens generated, resident or not), and for any prices

    cost >= sum over batches of (flags - price x M) + sum over requests of its cheapest way, prices included.

The tree fixes, too, how many batches prefill. A batch that is still open is charged the lesser flag, and each fill in
it a share of a toll, whatever the toll: shares that add up to at most 1 however many requests are filled together (per
request and per block filled, by weights of sum 1), and the open batches that prefill pay their flags and take in their
tolls. Decode steps in a batch that prefills are charged shares of their flag in the same way. All of it is computed in
whole ticks, so every value is an exact bound. With all batches decided, sweeps over states (`csp.waves.sweep`) see what
prices cannot.

The bounds are for schedules with whole fills, as in the search over states (`csp.search`).
"""
