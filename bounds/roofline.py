"""Theory against practice: measured operator times beside what the roofline says (paper, figures 6 and 7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.cost.roofline import OperatorCost, Slice, operators
from sim.cost.setups import Setup

if TYPE_CHECKING:
    from sim.cost.fit.profiles import Profile
    from sim.cost.fit.samples import Samples

_SIZES = (1, 32, 256, 2048)
"""Left ends of the classes of batches (tokens) in the table."""
_DECODE_KV_TOKENS = 1024
_BARS = 4


@dataclass(frozen=True, slots=True)
class Measured:
    """One operator of one batch, measured and in theory, per layer and GPU."""

    theory: OperatorCost
    batch: Slice
    measured_ms: float

    @property
    def ratio(self) -> float:
        """Measured over least time."""
        return self.measured_ms / self.theory.time_ms

    @property
    def tokens(self) -> int:
        """Tokens of the batch."""
        return self.batch.tokens * self.batch.requests


@dataclass(frozen=True, slots=True)
class ClassRow:
    """Batches of one operator with so many tokens: how far theory is from practice.

    Parameters
    ----------
    ratio
        Median of measured over theory.
    flops_share, bandwidth_share
        Median share of the data sheet's peak FLOPS and of its bandwidth that is reached.
    """

    operator: str
    least_tokens: int
    most_tokens: int
    count: int
    ratio: float
    flops_share: float
    bandwidth_share: float
    bound: str

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "operator": self.operator, "tokens": [self.least_tokens, self.most_tokens], "count": self.count,
            "measured_over_theory": self.ratio, "peak_flops_share": self.flops_share,
            "bandwidth_share": self.bandwidth_share, "bound": self.bound,
        }  # fmt: skip


def measure(profiles: Sequence[Profile], setup: Setup) -> list[Measured]:
    """Every measured operator of the profiles beside its roofline.

    Raises
    ------
    sim.errors.InputError
        If the profiles hold nothing of this setup.
    """
    from sim.cost.fit.measurements import collect, layer_operators

    found = []
    for profile in profiles:
        for name, tokens, milliseconds in layer_operators(profile, setup):
            for batch, ms in zip(tokens, milliseconds, strict=True):
                found.append(_measured(setup, name, Slice(int(batch)), float(ms)))
    attention = [profile for profile in profiles if "attention" in profile.kind and profile.kind != "non-attention"]
    for one in collect(attention, setup, setup.llm.layers):
        found += [_measured(setup, one.group, batch, ms) for batch, ms in attention_batches(one)]
    return [one for one in found if one.theory.time_ms > 0]


def attention_batches(samples: Samples) -> Iterator[tuple[Slice, float]]:
    """Batches of equal requests that attention was measured on."""
    from sim.cost.model import Features

    for row, ms in zip(samples.features, samples.layer_ms, strict=True):
        values = Features(*(round(float(x)) for x in row))
        if values.n_decode:
            yield Slice(1, values.decode_reads // values.n_decode, values.n_decode, True), float(ms)
        else:
            n = values.n_prefill
            yield Slice(values.tokens // n, values.prefill_reads // n, n), float(ms)


def _measured(setup: Setup, name: str, batch: Slice, ms: float) -> Measured:
    theory = next(cost for cost in operators(setup, [batch]) if cost.name == name)
    return Measured(theory, batch, ms)


def classes(setup: Setup, found: Sequence[Measured]) -> list[ClassRow]:
    """Medians per operator and class of batches."""
    rows = []
    for name in dict.fromkeys(one.theory.name for one in found):
        for left, right in zip(_SIZES, [*_SIZES[1:], None], strict=True):
            inside = [one for one in found if one.theory.name == name and one.tokens >= left
                      and (right is None or one.tokens < right)]  # fmt: skip
            if not inside:
                continue
            flops = [one.theory.flops / one.measured_ms * 1e3 / setup.gpu.flops for one in inside]
            moved = [float(one.theory.bytes) / one.measured_ms * 1e3 / setup.gpu.bandwidth for one in inside]
            bounds = [one.theory.bound for one in inside]
            tokens = [one.tokens for one in inside]
            rows.append(ClassRow(
                name, min(tokens), max(tokens), len(inside), float(np.median([one.ratio for one in inside])),
                float(np.median(flops)), float(np.median(moved)), max(sorted(set(bounds)), key=bounds.count),
            ))  # fmt: skip
    return rows


@dataclass(frozen=True, slots=True)
class Bar:
    """One batch of figure 6: ms per layer of every operator, in theory and measured."""

    label: str
    theory_ms: dict[str, float]
    measured_ms: dict[str, float]


def bars(setup: Setup, found: Sequence[Measured]) -> list[Bar]:
    """A few prefill and decode batches whose operators were all measured (others interpolated between batches)."""
    by_name: dict[str, list[Measured]] = {}
    for one in found:
        by_name.setdefault(one.theory.name, []).append(one)
    layer = {name: rows for name, rows in by_name.items() if not name.endswith("attention")}
    result = []
    for phase in ("prefill attention", "decode attention"):
        for one in _spread(by_name.get(phase, []), decode=phase == "decode attention"):
            measured = {name: _at(rows, one.tokens) for name, rows in layer.items()} | {phase: one.measured_ms}
            if any(value is None for value in measured.values()) or not layer:
                continue
            theory = {cost.name: cost.time_ms for cost in operators(setup, [one.batch])}
            requests = f" x {one.batch.requests}" if one.batch.requests > 1 else ""
            label = f"prefill {one.batch.tokens}{requests}" if phase == "prefill attention" else (
                f"decode {one.batch.requests}\nat {one.batch.kv_before}")  # fmt: skip
            names = [name for name in theory if name in measured]
            result.append(Bar(label, {name: theory[name] for name in names},
                              {name: float(measured[name] or 0.0) for name in names}))  # fmt: skip
    return result


def _spread(rows: Sequence[Measured], *, decode: bool) -> list[Measured]:
    """Some batches from small to large: whole single fills, or decodes at about 1,024 KVs."""
    if not rows:
        return []
    if decode:
        lengths = [one.batch.kv_before for one in rows]
        near = [m for m in lengths if _DECODE_KV_TOKENS / 2 <= m <= 2 * _DECODE_KV_TOKENS] or lengths
        at = max(near, key=lambda m: (lengths.count(m), -abs(m - _DECODE_KV_TOKENS)))
        rows = [one for one in rows if one.batch.kv_before == at]
    else:
        rows = [one for one in rows if one.batch.kv_before == 0 and one.batch.requests == 1 and one.tokens >= 32]
    rows = sorted(rows, key=lambda one: one.tokens)
    picks = sorted({round(i * (len(rows) - 1) / (_BARS - 1)) for i in range(_BARS)}) if rows else []
    return [rows[i] for i in picks]


def _at(rows: Sequence[Measured], tokens: int) -> float | None:
    """Measured time at so many tokens, interpolated; None outside what was measured."""
    xs = np.array([one.tokens for one in rows], dtype=float)
    order = np.argsort(xs)
    ys = np.array([one.measured_ms for one in rows])[order]
    if not xs.min() <= tokens <= xs.max():
        return None
    return float(np.interp(tokens, xs[order], ys))
