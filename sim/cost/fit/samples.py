"""Measured times per operator group, and the features each group may depend on.

==================  ================================================  ==========================================
group               features (see `sim.cost.model.Features`)          measured as
==================  ================================================  ==========================================
non-attention       batch, tokens                                     Vidur's operators of a layer, added up; or the
                                                                      four matmuls from a gemm table plus what the
                                                                      roofline says of elementwise operators
prefill attention   prefill_batch, n_prefill, prefill_square,         prefill attention of a layer
                    prefill_reads (and tokens, charged apart)
decode attention    decode_batch, n_decode, decode_reads              decode attention of a layer
all-reduce          batch, tokens                                     two all-reduces of T x h values a layer
whole batch         all                                               a live engine's log, per layer
==================  ================================================  ==========================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.cost.model import Features

Array = NDArray[np.float64]

GROUP_FEATURES = {
    "non-attention": ("batch", "tokens"),
    "prefill attention": ("prefill_batch", "n_prefill", "prefill_square", "prefill_reads"),
    "decode attention": ("decode_batch", "n_decode", "decode_reads"),
    "all-reduce": ("batch", "tokens"),
    "whole batch": Features._fields,
}


@dataclass(frozen=True, slots=True)
class Samples:
    """Measured times of one operator group.

    Parameters
    ----------
    group
        One of `GROUP_FEATURES`.
    features
        Shape (n, 9), columns as in `Features`.
    layer_ms
        Shape (n,), milliseconds per layer.
    notes
        What was assumed on the way.
    """

    group: str
    features: Array
    layer_ms: Array
    notes: tuple[str, ...] = ()

    @property
    def tokens(self) -> Array:
        """Tokens per batch."""
        column: Array = self.features[:, Features._fields.index("tokens")]
        return column

    @property
    def columns(self) -> list[int]:
        """Positions of the features this group may depend on."""
        return [Features._fields.index(name) for name in GROUP_FEATURES[self.group]]

    def tidy(self) -> Samples:
        """Equal rows become their median; rows ordered by tokens, then by the other features."""
        rows, owner = np.unique(self.features, axis=0, return_inverse=True)
        medians = np.array([np.median(self.layer_ms[owner.ravel() == i]) for i in range(len(rows))])
        keys = [rows[:, i] for i in self.columns[::-1]] + [rows[:, Features._fields.index("tokens")]]
        order = np.lexsort(keys)
        return Samples(self.group, rows[order], medians[order], self.notes)


def samples(
    group: str, columns: Mapping[str, Array | float], layer_ms: Array, notes: Sequence[str] = ()
) -> Samples:  # fmt: skip
    """Samples from named feature columns; features not named are 0."""
    rows = np.zeros((len(layer_ms), len(Features._fields)))
    for name, values in columns.items():
        rows[:, Features._fields.index(name)] = values
    return Samples(group, rows, np.asarray(layer_ms, dtype=float), tuple(notes))


def layer_samples(group: str, tokens: Array, layer_ms: Array, notes: Sequence[str] = ()) -> Samples:
    """An operator group that depends on the tokens of a batch only."""
    return samples(group, {"batch": 1.0, "tokens": tokens}, layer_ms, notes)


def fill_samples(requests: Array, c: Array, m: Array, layer_ms: Array, notes: Sequence[str] = ()) -> Samples:
    """Attention of requests that process c tokens each while holding m KVs each."""
    columns: dict[str, Array | float] = {
        "batch": 1.0, "prefill_batch": 1.0, "n_prefill": requests, "tokens": requests * c,
        "prefill_square": requests * (c * c + 2 * c * m), "prefill_reads": requests * m,
    }  # fmt: skip
    return samples("prefill attention", columns, layer_ms, notes)


def decode_samples(requests: Array, m: Array, layer_ms: Array, notes: Sequence[str] = ()) -> Samples:
    """Attention of decode steps of requests that hold m KVs each."""
    columns: dict[str, Array | float] = {"batch": 1.0, "decode_batch": 1.0, "n_decode": requests, "tokens": requests,
               "decode_reads": requests * m}  # fmt: skip
    return samples("decode attention", columns, layer_ms, notes)
