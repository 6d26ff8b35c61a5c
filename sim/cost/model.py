"""The one form all cost models share, exact in integer ticks.

    time of a batch = sum over operator groups of  max over pieces of  (coefficients . features)

*linear* has one piece a group (Kim et al., section 4.2), *max-affine* two or three, *roofline* two (compute and memory,
equation 4). The form is convex in the features, so solvers and bounds use it exactly: time >= every piece.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache, lru_cache
from importlib import resources
from operator import mul
from pathlib import Path
from typing import Any, NamedTuple

from sim.clock import ticks_from_ms
from sim.errors import InputError
from sim.files import exists, read_text, unique_pairs
from sim.instance import SCHEMA_VERSION
from sim.registry import unknown


class Features(NamedTuple):
    """What the time of one batch depends on.

    ``c`` tokens are processed for a request that holds ``m`` KVs before the batch.
    """

    batch: int
    """1 if the batch processes anything."""
    prefill_batch: int
    """1 if it holds at least one prefill."""
    decode_batch: int
    """1 if it holds at least one decode step."""
    n_prefill: int
    """Prefill entries (fills, refills and chunks of them)."""
    n_decode: int
    """Decode entries."""
    tokens: int
    """T, sum of c over all entries."""
    prefill_square: int
    """Q, sum over prefills of c^2 + 2 c m."""
    prefill_reads: int
    """P, sum over prefills of m."""
    decode_reads: int
    """D, sum over decodes of m."""


Piece = tuple[int, ...]
"""One affine function: a coefficient in ticks for each field of `Features`, layers included."""

_ZERO = Features(0, 0, 0, 0, 0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class OperatorGroup:
    """Operators that are timed together: the largest of its pieces."""

    name: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class CostModel:
    """Batch times of one LLM on one GPU setup.

    Parameters
    ----------
    name
        As given in instances, "kind/llm-gpu".
    kind
        "linear", "max-affine" or "roofline".
    layers
        Transformer layers; already multiplied into the pieces.
    groups
        Operator groups; all coefficients are >= 0, so time never falls when a feature grows.
    source
        Where the coefficients come from.
    """

    name: str
    kind: str
    layers: int
    groups: tuple[OperatorGroup, ...]
    source: str = ""

    def batch_ticks(self, features: Features) -> int:
        """Exact time of one batch in ticks (1e-11 ms).

        >>> model = load_cost_model("linear/llama2-7b-a100")
        >>> model.batch_ticks(Features(1, 1, 0, 4, 0, 4, 4, 0, 0))
        547957346944
        """
        return sum(max([sum(map(mul, piece, features)) for piece in group.pieces]) for group in self.groups)

    @property
    def additive(self) -> bool:
        """Whether each group has one piece, so that a batch costs the sum of its entries and its flags."""
        return all(len(group.pieces) == 1 for group in self.groups)

    def coefficient(self, feature: str) -> int:
        """Sum over groups of one feature's coefficient in ticks; only for additive models.

        Raises
        ------
        ValueError
            If the model is not additive.
        """
        if not self.additive:
            raise ValueError(f"{self.name} is {self.kind}: no single coefficient per feature")
        return sum(group.pieces[0][Features._fields.index(feature)] for group in self.groups)

    def to_dict(self) -> dict[str, Any]:
        """The data file form (coefficients in ms per layer, exact decimals as text)."""
        groups = []
        for group in self.groups:
            pieces = [
                {f: _decimal_text(a, self.layers) for f, a in zip(Features._fields, piece, strict=True) if a}
                for piece in group.pieces
            ]
            groups.append({"name": group.name, "pieces": pieces})
        head = {"schema_version": 1, "name": self.name, "kind": self.kind, "layers": self.layers}
        return head | {"source": self.source, "groups": groups}


def _decimal_text(ticks: int, layers: int) -> str:
    value = Fraction(ticks, 10**11 * layers)
    return format(Decimal(value.numerator) / Decimal(value.denominator), "f")


MAX_MS = 10**9
"""Largest coefficient, in ms per layer; far above anything real, and it keeps times showable."""

_KINDS = ("linear", "max-affine", "roofline")
_MODEL_KEYS = ("schema_version", "name", "kind", "llm", "gpu", "layers", "source", "groups", "fit")


def cost_model_from_dict(data: object, source: str) -> CostModel:
    """Build a cost model from its data file.

    Coefficients are milliseconds per layer, keyed by the field names of `Features`.

    Raises
    ------
    InputError
        For missing, unknown, negative or non-finite values.
    """
    if not isinstance(data, Mapping):
        raise InputError("a cost model must be a mapping", source=source)
    for key in data:
        if key not in _MODEL_KEYS:
            raise InputError(unknown(str(key), list(_MODEL_KEYS)), source=source, field=str(key))
    for key in ("kind", "layers", "groups"):
        if key not in data:
            raise InputError("missing; every cost model needs it", source=source, field=key)
    if data["kind"] not in _KINDS:
        raise InputError(f"must be one of {', '.join(_KINDS)}", source=source, field="kind", value=data["kind"])
    layers = data["layers"]
    if isinstance(layers, bool) or not isinstance(layers, int) or layers < 1:
        raise InputError("must be an integer >= 1", source=source, field="layers", value=layers)
    if not isinstance(data["groups"], list) or not data["groups"]:
        raise InputError("must be a list of at least one operator group", source=source, field="groups")
    if data.get("schema_version", SCHEMA_VERSION) != SCHEMA_VERSION:
        raise InputError(f"this version reads {SCHEMA_VERSION}", source=source, field="schema_version",
                         value=data["schema_version"])  # fmt: skip
    for key in ("name", "source"):
        if not isinstance(data.get(key, ""), str):
            raise InputError("must be a string", source=source, field=key, value=data[key])
    groups = tuple(_group(g, layers, source, f"groups[{i}]") for i, g in enumerate(data["groups"]))
    name = str(data.get("name", source))
    return CostModel(name, data["kind"], layers, groups, str(data.get("source", "")))


def _group(data: object, layers: int, source: str, where: str) -> OperatorGroup:
    if not isinstance(data, Mapping) or not isinstance(data.get("pieces"), list) or not data["pieces"]:
        raise InputError("must have a name and at least one piece", source=source, field=where)
    for key in data:
        if key not in ("name", "pieces"):
            raise InputError(unknown(str(key), ["name", "pieces"]), source=source, field=f"{where}.{key}")
    pieces = []
    for number, piece in enumerate(data["pieces"]):
        place = f"{where}.pieces[{number}]"
        if not isinstance(piece, Mapping):
            raise InputError("must map features to coefficients", source=source, field=place)
        for key in piece:
            if key not in Features._fields:
                raise InputError(unknown(str(key), list(Features._fields)), source=source, field=f"{place}.{key}")
        pieces.append(tuple(_ticks(piece.get(f, 0), layers, source, f"{place}.{f}") for f in Features._fields))
    return OperatorGroup(str(data.get("name", where)), tuple(pieces))


def _ticks(value: object, layers: int, source: str, field: str) -> int:
    try:
        if isinstance(value, bool):
            raise ValueError
        number = Decimal(str(value))
        if not number.is_finite() or not 0 <= number <= MAX_MS:
            raise ValueError
    except (ValueError, ArithmeticError):
        raise InputError(f"must be a number of ms per layer from 0 to {MAX_MS:,}", source=source, field=field,
                         value=value) from None  # fmt: skip
    return ticks_from_ms(number * layers)


@lru_cache(maxsize=64)
def load_cost_model(name: str) -> CostModel:
    """A cost model by shipped name ("linear/llama2-7b-a100"), from a JSON file, or "roofline/llm-gpu" from data sheets.

    Raises
    ------
    InputError
        If there is neither, or the file is broken.
    """
    if name in _shipped_files():
        shipped = resources.files("sim.cost") / "data" / (name.replace("/", "--") + ".json")
        text, source = shipped.read_text("utf-8"), name
    elif exists(Path(name)):
        text, source = read_text(Path(name)), name
    elif name.startswith("roofline/"):
        from sim.cost.roofline import roofline_cost_model
        from sim.cost.setups import find_setup

        return roofline_cost_model(find_setup(name.removeprefix("roofline/")))
    else:
        raise InputError("no such file; " + unknown(name, cost_model_names()), field="cost_model")
    try:
        data = json.loads(text, parse_float=Decimal, object_pairs_hook=unique_pairs)
    except InputError as error:
        raise InputError(error.rule, source=source, field=error.field) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON: {error}", source=source) from None
    return cost_model_from_dict(data, source)


def cost_model_names() -> list[str]:
    """Names of the cost models that come with the package.

    >>> "linear/llama2-7b-a100" in cost_model_names()
    True
    """
    from sim.cost.setups import all_setups

    of_machines = (name for name in _shipped_files() if "/" in name)  # "unit" stands for no machine
    return sorted(of_machines) + sorted(f"roofline/{setup.name}" for setup in all_setups())


@cache
def _shipped_files() -> frozenset[str]:
    folder = resources.files("sim.cost") / "data"
    return frozenset(
        f.name.removesuffix(".json").replace("--", "/") for f in folder.iterdir() if f.name.endswith(".json")
    )
