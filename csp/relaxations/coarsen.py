"""Fewer types of requests at no cost in validity: round lengths down.

A request with fewer input or output tokens is no harder: from a schedule for the longer one, leave out its first
prompt tokens and its last output tokens; memory, tokens and every feature only shrink, and a batch left with nothing
to process costs nothing. So a bound for rounded-down lengths that admits such empty batches holds for the given ones.
"""

from __future__ import annotations

from dataclasses import replace

from csp.relaxations.load import Load


def coarsen(load: Load, most_types: int) -> Load:
    """Group requests into at most so many types; each group gets its least I and least O.

    Groups are found by splitting, time and again, the group whose rounding loses the most area, in two halves along
    the length that loses more.

    Examples
    --------
    >>> coarsen(Load(((4, 2, 1), (5, 2, 1), (40, 9, 3)), 100, 1, 100, None), 2).lengths
    ((4, 2, 2), (40, 9, 3))
    """
    groups = [list(load.lengths)]
    while len(groups) < most_types:
        groups.sort(key=_loss)
        worst = groups[-1]
        if _loss(worst) == 0:
            break
        groups[-1:] = _halves(worst)
    counts: dict[tuple[int, int], int] = {}
    for group in groups:
        least = min(i for i, _, _ in group), min(o for _, o, _ in group)
        counts[least] = counts.get(least, 0) + sum(n for _, _, n in group)
    return replace(load, lengths=tuple((i, o, n) for (i, o), n in sorted(counts.items())))


def _area(i: int, o: int) -> int:
    return o * i + o * (o - 1) // 2


def _loss(group: list[tuple[int, int, int]]) -> int:
    least = _area(min(i for i, _, _ in group), min(o for _, o, _ in group))
    return sum(n * (_area(i, o) - least) for i, o, n in group)


def _halves(group: list[tuple[int, int, int]]) -> list[list[tuple[int, int, int]]]:
    """The cheaper of the best splits along I and along O."""
    best: tuple[int, list[list[tuple[int, int, int]]]] | None = None
    for axis in (0, 1):
        ordered = sorted(group, key=lambda length: length[axis])
        cuts = [c for c in range(1, len(ordered)) if ordered[c][axis] > ordered[c - 1][axis]]
        step = max(1, len(cuts) // 16)
        for cut in cuts[::step]:
            halves = [ordered[:cut], ordered[cut:]]
            loss = sum(map(_loss, halves))
            if best is None or loss < best[0]:
                best = loss, halves
    assert best is not None
    return best[1]
