"""Lower bounds for systems beyond one machine with unshared KVs: relaxations to what the other bounds describe.

*Shared prefixes.* Take any schedule under prefix sharing and strike everything that concerns shared prefix tokens: a
request that processes tokens m+1..m+c processes only those beyond its prefix of P tokens and holds max(0, m - P) KVs.
It generates in the same batches. No batch holds more KVs than before (a request's own KVs are just those beyond P,
and the prefixes' own KVs are gone), none processes more tokens, and no feature grows. So it is a schedule of the
instance with I - P in place of I, perhaps with batches that process nothing, which takes no longer: bounds of that
instance hold.

*Disaggregated pools.* Put the batches of all p prefill workers one after the other: a schedule on one machine of the
instance with O = 1, so they are busy for at least its bound together and one of them for at least a p-th of it. The
same with the d decode workers: together they generate tokens 2..O, each at size s = I + k - 1 in some batch, which
takes

    J >= max( max (O - 1), ceil(sum of blocks(s) / blocks of M) )

batches, each at least as long as the shortest batch that processes one token; where the cost is additive, each token
adds at least the cheaper of its decode entry and its refill entry. Arrivals, transfers and offloading only add to it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from bounds.lower import QUICK, all_bounds
from sim.cost.model import CostModel, Features
from sim.disaggregation import Pools
from sim.instance import Instance


def without_prefixes(instance: Instance) -> Instance:
    """The instance with every shared prefix taken as free: its bounds hold for the instance with prefix sharing."""
    requests = tuple(
        replace(r, input_tokens=r.input_tokens - r.prefix_tokens, prefix=None, prefix_tokens=0)
        for r in instance.requests
    )
    return instance.replace(requests=requests)


def disaggregated_bound_ticks(instance: Instance, cost: CostModel, pools: Pools) -> int:
    """Lower bound on the end of the last batch of any worker, in ticks.

    Raises
    ------
    sim.errors.InputError
        If a request can never fit.
    """
    prefills = instance.replace(requests=tuple(replace(r, output_tokens=1, arrival_ns=0) for r in instance.requests))
    prefill = max(int(bound.value_ticks) for bound in all_bounds(prefills, cost, only=QUICK))
    return max(-(-prefill // pools.prefill_workers), -(-decode_bound_ticks(instance, cost) // pools.decode_workers))


def decode_bound_ticks(instance: Instance, cost: CostModel) -> int:
    """Time that decode workers are busy for together, at least."""
    decoding = [r for r in instance.requests if r.output_tokens > 1]
    if not decoding:
        return 0
    area = sum(instance.blocks(r.input_tokens + k) for r in decoding for k in range(1, r.output_tokens))
    batches = max(max(r.output_tokens - 1 for r in decoding), -(-area // instance.kv_blocks))
    decode, fill = Features(1, 0, 1, 0, 1, 1, 0, 0, 0), Features(1, 1, 0, 1, 0, 1, 1, 0, 0)
    if not cost.additive:
        return batches * min(cost.batch_ticks(decode), cost.batch_ticks(fill))
    flags = [cost.batch_ticks(f._replace(n_prefill=0, n_decode=0, tokens=0, prefill_square=0)) for f in (decode, fill)]
    sizes: Counter[int] = Counter()
    for r in decoding:
        sizes.update(range(r.input_tokens + 1, r.input_tokens + r.output_tokens))
    tokens = sum(n * _token_ticks(cost, size) for size, n in sizes.items())
    return batches * min(flags) + tokens


def _token_ticks(cost: CostModel, size: int) -> int:
    """What generating a token at this size adds to a batch, at least."""
    decode = cost.batch_ticks(Features(0, 0, 0, 0, 1, 1, 0, 0, size - 1))
    return min(decode, cost.batch_ticks(Features(0, 0, 0, 1, 0, size, size * size, 0, 0)))
