"""What if: the same workload with more memory, a faster GPU, or another one.

A what-if is written as changes joined by commas: ``infinite-kv`` (M holds everybody at once), ``kv=X`` (X times M),
``bandwidth=X`` and ``compute=X`` (X times as fast), ``perfect-bandwidth`` (memory traffic at the data sheet's rate),
``gpu=NAME`` (the same LLM and kind of cost model on another GPU), ``cost-model=NAME``.

What a batch time owes to bandwidth and what to compute: a roofline is rebuilt from a data sheet with other numbers. In
a linear or max-affine model the parts are told by their features: weights read once per batch and KVs read (``batch``,
``decode_reads``, ``prefill_reads``) are memory traffic, tokens and squares (``tokens``, ``prefill_square``) are
compute, and charges per request or per kind of batch are neither. M stays what it is unless it is changed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from sim.cost.model import CostModel, Features, OperatorGroup, load_cost_model
from sim.cost.roofline import roofline_cost_model
from sim.cost.setups import Setup, find_setup
from sim.errors import InputError
from sim.instance import MAX_TOKENS, Instance
from sim.registry import unknown

MEMORY = ("batch", "decode_reads", "prefill_reads")
COMPUTE = ("tokens", "prefill_square")

_SWITCHES = ("infinite-kv", "perfect-bandwidth")
_SCALES = ("kv", "bandwidth", "compute")
_NAMES = ("gpu", "cost-model")
Change = tuple[str, Fraction | str | None]


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Changes to make together.

    Examples
    --------
    >>> parse_what_if("infinite-kv,bandwidth=2").changes
    (('infinite-kv', None), ('bandwidth', Fraction(2, 1)))
    """

    text: str
    changes: tuple[Change, ...]

    def apply(self, instance: Instance) -> tuple[Instance, CostModel]:
        """The changed instance and its cost model.

        Raises
        ------
        InputError
            If the LLM or the GPU of the cost model is not known, where that is needed.
        """
        rates = {"bandwidth": Fraction(1), "compute": Fraction(1)}
        for kind, value in self.changes:
            if kind == "infinite-kv":
                instance = instance.replace(kv_capacity_tokens=_room_for_all(instance))
            elif kind == "kv":
                assert isinstance(value, Fraction)
                tokens = max(1, min(MAX_TOKENS, int(instance.kv_capacity_tokens * value)))
                instance = instance.replace(kv_capacity_tokens=tokens)
            elif kind in _NAMES:
                assert isinstance(value, str)
                name = value if kind == "cost-model" else _on_gpu(instance.cost_model, value)
                instance = instance.replace(cost_model=name)
            elif kind in rates:
                assert isinstance(value, Fraction)
                rates[kind] *= value
        # The GPU's rates come last, so that the order in which changes are written does not matter.
        cost = load_cost_model(instance.cost_model)
        if ("perfect-bandwidth", None) in self.changes:
            cost = perfect_bandwidth(cost)
        if any(rate != 1 for rate in rates.values()):
            cost = scaled(cost, **rates)
        return instance, cost


def parse_what_if(text: str, field: str = "--what-if") -> WhatIf:
    """A what-if from its text form.

    Raises
    ------
    InputError
        For an unknown change or a bad number.
    """
    changes: list[Change] = []
    for part in text.split(","):
        kind, equals, value = part.partition("=")
        if kind in _SWITCHES and not equals:
            changes.append((kind, None))
        elif kind in _NAMES and value:
            changes.append((kind, value))
        elif kind in _SCALES:
            changes.append((kind, _factor(value, field)))
        else:
            known = [*_SWITCHES, *(f"{k}=X" for k in _SCALES), *(f"{k}=NAME" for k in _NAMES)]
            raise InputError(unknown(part, known), field=field)
    return WhatIf(text, tuple(changes))


def _factor(text: str, field: str) -> Fraction:
    try:
        value = float(text)
        if not (math.isfinite(value) and 1e-6 <= value <= 1e6):
            raise ValueError
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise InputError("must be a factor from 1e-6 to 1e6", field=field, value=text) from None


def _room_for_all(instance: Instance) -> int:
    peaks = sum(instance.blocks(r.peak_kv_tokens) for r in instance.requests) * instance.block_size
    return max(instance.kv_capacity_tokens, min(MAX_TOKENS, peaks))


def _setup(cost: CostModel) -> Setup:
    rest = cost.name.partition("/")[2]
    if not rest:
        raise InputError("the cost model's name must be kind/llm-gpu to know its GPU", field="cost_model",
                         value=cost.name)  # fmt: skip
    return find_setup(rest)


def _on_gpu(name: str, gpu: str) -> str:
    kind, _, rest = name.partition("/")
    if not rest:
        raise InputError("the cost model's name must be kind/llm-gpu to know its LLM", field="cost_model", value=name)
    setup = find_setup(rest)
    count = "" if setup.tensor_parallel == 1 else f"{setup.tensor_parallel}x"
    return f"{kind}/{setup.llm.name}-{count}{gpu}"


def scaled(cost: CostModel, *, bandwidth: Fraction = Fraction(1), compute: Fraction = Fraction(1)) -> CostModel:
    """The cost model of a GPU with so many times the memory bandwidth and the compute."""
    label = f"{cost.name} (bandwidth x{float(bandwidth):g}, compute x{float(compute):g})"
    if cost.kind == "roofline":
        setup = _setup(cost)
        gpu = replace(setup.gpu, bandwidth=round(setup.gpu.bandwidth * bandwidth),
                      flops=round(setup.gpu.flops * compute))  # fmt: skip
        return replace(roofline_cost_model(replace(setup, gpu=gpu)), name=label)
    ratios = dict.fromkeys(MEMORY, 1 / bandwidth) | dict.fromkeys(COMPUTE, 1 / compute)
    return _multiplied(cost, ratios, label)


def perfect_bandwidth(cost: CostModel) -> CostModel:
    """The cost model with memory traffic no slower than bytes over the data sheet's bandwidth."""
    if cost.kind == "roofline":
        return cost
    ideal = roofline_cost_model(_setup(cost))
    ratios = {}
    for feature in MEMORY:
        k = Features._fields.index(feature)
        least = sum(max(piece[k] for piece in group.pieces[1:] or group.pieces) for group in ideal.groups)
        now = sum(max(piece[k] for piece in group.pieces) for group in cost.groups)
        ratios[feature] = min(Fraction(1), Fraction(least, now)) if now else Fraction(1)
    return _multiplied(cost, ratios, f"{cost.name} (perfect bandwidth)")


def _multiplied(cost: CostModel, ratios: dict[str, Fraction], name: str) -> CostModel:
    factors = [ratios.get(feature, Fraction(1)) for feature in Features._fields]
    groups = tuple(
        OperatorGroup(g.name, tuple(tuple(round(a * f) for a, f in zip(piece, factors, strict=True))
                                    for piece in g.pieces))
        for g in cost.groups
    )  # fmt: skip
    return replace(cost, name=name, groups=groups)
