"""From profiles to a cost model file with its error table.

Every fifth row of a group is held out: never fitted to, never used to choose the number of pieces. The error table
gives the errors of the shipped coefficients, rounded as shipped, on those rows and on all.

Time that prefill attention takes in proportion to its tokens has no feature of its own (T counts decode tokens too). It
is charged to all tokens in a group of its own, and decode attention is fitted to what is left: exact for every batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.cost.fit.errors import ErrorRow, error_row
from sim.cost.fit.max_affine import Data, Fit, choose_pieces, data, fit_max_affine
from sim.cost.fit.measurements import collect
from sim.cost.fit.profiles import Profile
from sim.cost.fit.samples import Samples
from sim.cost.model import CostModel, Features, cost_model_from_dict
from sim.cost.setups import Setup
from sim.errors import InputError

Array = NDArray[np.float64]
KINDS = {"linear": "linear-fit", "max-affine": "max-affine"}
"""Kinds that can be fitted, and how their names begin (published linear sets are called "linear/...")."""

PER_TOKEN = "prefill attention, per token"
_HELD_EVERY = 5
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted cost model.

    Parameters
    ----------
    cost
        The cost model.
    document
        Its data file, provenance and error table included.
    errors
        The error table.
    samples
        What it was fitted to.
    """

    cost: CostModel
    document: dict[str, Any]
    errors: tuple[ErrorRow, ...]
    samples: tuple[Samples, ...]


def calibrate(
    profiles: Sequence[Profile],
    setup: Setup | None,
    *,
    kind: str,
    layers: int | None = None,
    most_pieces: int = 3,
    seed: int = 0,
    name: str | None = None,
    command: str = "",
) -> Calibration:
    """Fit a cost model to profiles.

    Parameters
    ----------
    profiles
        Operator profiles that together cover a whole layer, or one log of a live engine.
    setup
        LLM and GPUs; may be None for an engine log.
    kind
        "linear" or "max-affine".
    layers
        Layers of the LLM if there is no setup (default 1: the fit is per batch then).
    most_pieces
        Most pieces per operator group for max-affine.
    seed
        For the starts of the fits.
    name
        Of the cost model.
    command
        The command that reproduces the fit, for the file.

    Raises
    ------
    InputError
        If the profiles do not cover a whole layer, or too few rows are left.
    """
    count = setup.llm.layers if setup is not None else layers or 1
    samples = collect(profiles, setup, count)
    _check_cover(samples, setup)
    rng = np.random.default_rng(seed)
    groups: dict[str, list[dict[str, float]]] = {}
    chosen: dict[str, Any] = {}
    for one in sorted(samples, key=lambda s: s.group != "prefill attention"):
        pieces, choice = _fit_group(one, 1 if kind == "linear" else most_pieces, rng, groups)
        groups |= pieces
        chosen[one.group] = choice
    notes = [note for one in samples for note in one.notes] + _fill_reads(groups, samples)
    label = name or f"{KINDS[kind]}/{setup.name if setup is not None else 'engine'}"
    document = _document(label, kind, setup, count, groups, profiles)
    cost = cost_model_from_dict(document, label)
    errors = _errors(cost, samples)
    document["fit"] |= {
        "command": command, "seed": seed, "pieces": chosen, "notes": list(dict.fromkeys(notes)),
        "errors": [row.to_dict() for row in errors],
    }  # fmt: skip
    return Calibration(cost, document, tuple(errors), tuple(samples))


def _check_cover(samples: Sequence[Samples], setup: Setup | None) -> None:
    found = {one.group for one in samples}
    needed = {"non-attention", "prefill attention", "decode attention"}
    if setup is not None and setup.tensor_parallel > 1:
        needed.add("all-reduce")
    if "whole batch" not in found and needed - found:
        raise InputError(f"the profiles hold nothing of {', '.join(sorted(needed - found))}; a cost model needs "
                         f"{', '.join(sorted(needed))}, or a log of batches", field="PROFILE")  # fmt: skip
    for one in samples:
        if len(one.layer_ms) < 2 * _HELD_EVERY:
            raise InputError(f"only {len(one.layer_ms)} different rows; at least {2 * _HELD_EVERY} are needed",
                             field=one.group)  # fmt: skip


def held_out(count: int) -> NDArray[np.bool_]:
    """Which of so many ordered rows are held out: every fifth, from the third on."""
    held: NDArray[np.bool_] = np.arange(count) % _HELD_EVERY == 2
    return held


def _fit_group(
    samples: Samples, most: int, rng: np.random.Generator, groups: Mapping[str, list[dict[str, float]]]
) -> tuple[dict[str, list[dict[str, float]]], dict[str, Any]]:
    """Pieces of one group as {group: [{feature: ms per layer}]}, and how their number was chosen."""
    rows = _data(samples, groups)
    seen = rows.rows(~held_out(len(rows.times)))
    pieces, cross_validated = choose_pieces(seen, most, rng) if most > 1 else (1, [])
    fit = fit_max_affine(seen, pieces, rng)
    names = [Features._fields[i] for i in samples.columns]
    found = {samples.group: _used_pieces(fit, seen, names)}
    if len(fit.shared) and fit.shared[0] > 0:
        found[PER_TOKEN] = [{"tokens": _rounded(fit.shared[0])}]
    choice = {"chosen": pieces, "used": len(found[samples.group]),
              "cross_validated_mean_error": [round(error, 4) for error in cross_validated]}  # fmt: skip
    return found, choice


def _data(samples: Samples, groups: Mapping[str, list[dict[str, float]]]) -> Data:
    features = samples.features[:, samples.columns]
    if samples.group == "prefill attention":
        return data(features, samples.layer_ms, shared=samples.tokens[:, None])
    if samples.group == "decode attention" and PER_TOKEN in groups:
        return data(features, samples.layer_ms, offset=groups[PER_TOKEN][0]["tokens"] * samples.tokens)
    return data(features, samples.layer_ms)


def _used_pieces(fit: Fit, rows: Data, names: Sequence[str]) -> list[dict[str, float]]:
    """Pieces that are largest somewhere, coefficients rounded, the ones that only add dust dropped."""
    used = sorted(set((rows.features @ fit.pieces.T).argmax(axis=1).tolist()))
    return [{name: _rounded(a) for name, a in zip(names, fit.pieces[i], strict=True) if a > 1e-15} for i in used]


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS - 1}e}")


def _fill_reads(groups: dict[str, list[dict[str, float]]], samples: Sequence[Samples]) -> list[str]:
    """Charge prefill chunks for reading earlier KVs where no profile has such chunks: as a decode step does."""
    reads = Features._fields.index("prefill_reads")
    for one in samples:
        if one.group == "prefill attention" and not one.features[:, reads].any():
            slope = max(piece.get("decode_reads", 0.0) for piece in groups["decode attention"])
            for piece in groups["prefill attention"]:
                piece["prefill_reads"] = slope
            return ["no chunk with earlier KVs was measured: prefill_reads taken from decode attention"]
    return []


def _document(
    label: str, kind: str, setup: Setup | None, layers: int, groups: Mapping[str, list[dict[str, float]]],
    profiles: Sequence[Profile],
) -> dict[str, Any]:  # fmt: skip
    head: dict[str, Any] = {"schema_version": 1, "name": label, "kind": kind}
    if setup is not None:
        count = "" if setup.tensor_parallel == 1 else f"{setup.tensor_parallel} x "
        head |= {"llm": setup.llm.title, "gpu": count + setup.gpu.title}
    files = [{"file": profile.file, "sha256": profile.digest} for profile in profiles]
    source = "fitted to measured profiles: " + ", ".join(profile.file for profile in profiles)
    # repr gives the shortest decimal that is exactly the rounded value.
    texts = [
        {"name": name, "pieces": [{feature: repr(value) for feature, value in piece.items()} for piece in pieces]}
        for name, pieces in groups.items()
    ]
    fit = {"loss": "sum of squared relative errors", "held_out": "every fifth row", "profiles": files}
    return head | {"layers": layers, "source": source, "groups": texts, "fit": fit}


def _errors(cost: CostModel, samples: Sequence[Samples]) -> list[ErrorRow]:
    rows = []
    for one in samples:
        own = {one.group, PER_TOKEN} if one.group in ("prefill attention", "decode attention") else {one.group}
        part = replace(cost, groups=tuple(group for group in cost.groups if group.name in own))
        rows += _both(one.group, relative_errors(part, one.features, one.layer_ms), one.tokens)
    by_group = {one.group: one for one in samples}
    for phase in ("prefill", "decode"):
        attention = by_group.get(f"{phase} attention")
        if attention is None:
            continue
        measured = whole_batch_ms(attention, by_group)
        inside = ~np.isnan(measured)
        errors = np.full(len(measured), np.nan)
        errors[inside] = relative_errors(cost, attention.features[inside], measured[inside])
        rows += _both(f"whole {phase} batch", errors, attention.tokens)
    return rows


def _both(group: str, errors: Array, tokens: Array) -> list[ErrorRow]:
    known = ~np.isnan(errors)
    held = held_out(len(errors)) & known
    found = [error_row(group, "held-out", errors[held], tokens[held])] if held.any() else []
    return [*found, error_row(group, "all", errors[known], tokens[known])] if known.any() else found


def relative_errors(cost: CostModel, features: Array, layer_ms: Array) -> Array:
    """|predicted - measured| / measured per row, by the cost model's pieces in floating point."""
    per_layer = 1e11 * cost.layers
    predicted = sum(
        (features @ (np.array(group.pieces, dtype=float).T / per_layer)).max(axis=1) for group in cost.groups
    )
    errors: Array = np.abs(predicted - layer_ms) / layer_ms
    return errors


def whole_batch_ms(attention: Samples, by_group: Mapping[str, Samples]) -> Array:
    """Measured time per layer of whole batches: attention plus the other operators at as many tokens.

    The others are interpolated between their neighbouring measured batches; NaN outside their range.
    """
    total = attention.layer_ms.copy()
    for group in ("non-attention", "all-reduce"):
        if group in by_group:
            other = by_group[group]
            total += np.interp(attention.tokens, other.tokens, other.layer_ms, left=np.nan, right=np.nan)
    return total


def least_squares_line(samples: Samples) -> ErrorRow:
    """Errors of an ordinary least-squares line over tokens: the mark that a max-affine fit is compared with."""
    design = np.column_stack([np.ones_like(samples.tokens), samples.tokens])
    line = np.linalg.lstsq(design, samples.layer_ms, rcond=None)[0]
    errors = np.abs(design @ line - samples.layer_ms) / samples.layer_ms
    return error_row(f"{samples.group}, least-squares line", "all", errors, samples.tokens)
