"""Ways on that need not be tried, each with its proof; ``tests/csp/test_dominance.py`` tries to refute them.

All rules speak of whole fills, additive cost, and rules that allow preempting and hybrid batches; elsewhere they are
off. A schedule's *measure* is (sum over tokens of the index of the batch that generates it, minus the number of
(request, batch) pairs in which KVs stay resident), compared in that order. Each rule replaces a schedule that uses a
pruned way on by one that costs no more and has a smaller measure, so an optimal schedule of least measure uses none.

keep
    *Never evict request i, k tokens generated, if its KVs would still fit after the batch, where a refill costs at
    least a decode step and its flag*: fill(i, k) >= decode(i, k) + b_d. Proof: hold i instead, and evict it in the
    first later batch in which it does not fit (an eviction is free and in a batch of its own choosing). If it is
    refilled before that, decode instead: the KVs after that batch are the same, one token is processed instead of
    I + k >= 1, and the batch costs no more (fill saved, decode and at most one flag paid). Under the published
    Llama-2-7B coefficients this holds from 11 tokens on; below, a batch without decode step is cheaper if it refills.
resident
    *Of two states that differ only in that one holds more requests, each allowed by "keep", the other need not be
    looked at if it was not reached more cheaply.* Proof: follow the other's schedule, holding the extra requests as
    in "keep".
finish
    *If request i has one token left, that token's kind of entry (decode if resident, fill if not) is in the batch
    anyway, and i fits in memory, budget and slots beside the rest, then process it.* Needs fill >= decode for every
    k >= 1 and b_d <= b_o + b_p. Proof: take i's last entry out of the later batch j and put it here. It costs the
    same (or less, if i would have been evicted and refilled), its flag is already paid, and i's KVs are free from the
    next batch on. If batch j is left without entries it is dropped; whoever it evicted is evicted one batch later, or,
    if filled there, is held and decoded instead: the flag that may add is at most what dropping j saves.

Never pruned: holding a request that could decode. Three requests (I, O) = (3, 4) with M = 14 need it (19.960 ms
against 20.563 ms without).
"""
