"""Turn profiles into measured times per operator group of one LLM on one GPU setup."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from sim.cost.fit.gemm import GemmTable
from sim.cost.fit.profiles import VIDUR_OPERATORS, Profile
from sim.cost.fit.samples import Array, Samples, decode_samples, fill_samples, layer_samples, samples
from sim.cost.roofline import BYTES_PER_ELEMENT
from sim.cost.setups import Setup
from sim.errors import InputError

MOST_TOKENS = 16_384
"""Larger batches are left out of fits: no engine runs them, and they would cost accuracy where engines are."""
MOST_KV_TOKENS = 1_000_000
MOST_SEQUENCES = 512


def collect(profiles: Sequence[Profile], setup: Setup | None, layers: int) -> list[Samples]:
    """Measured times of every operator group that the profiles cover.

    Parameters
    ----------
    profiles
        Any number, at most one per operator group.
    setup
        LLM and GPUs; None only where all profiles are engine logs.
    layers
        Layers that an engine log's times are divided by.

    Raises
    ------
    InputError
        If a group is measured twice or the profiles hold nothing of this setup.
    """
    found: list[Samples] = []
    for profile in profiles:
        if profile.kind == "engine log":
            found.append(_engine_log(profile, layers))
        elif setup is None:
            raise InputError("operator profiles need --llm and --gpu", source=profile.file)
        else:
            found += _READERS[profile.kind](profile, setup)
    groups = [one.group for one in found]
    for group in groups:
        if groups.count(group) > 1:
            raise InputError(f"measured by two profiles: {group}; give one", field="PROFILE",
                             value=", ".join(profile.file for profile in profiles))  # fmt: skip
    if "whole batch" in groups and len(groups) > 1:
        raise InputError("a log of batches stands for the whole batch and cannot be mixed with operator profiles",
                         field="PROFILE", value=", ".join(profile.file for profile in profiles))  # fmt: skip
    return [one.tidy() for one in found]


def _require(rows: pd.DataFrame, profile: Profile, what: str) -> pd.DataFrame:
    if rows.empty:
        raise InputError(f"has no rows for {what}", source=profile.file)
    return rows


_VIDUR_NAMES = {"attn_pre_proj": "QKV_proj", "attn_post_proj": "O_proj", "mlp_up_proj": "UG_proj",
                "mlp_down_proj": "D_proj"}  # fmt: skip


def layer_operators(profile: Profile, setup: Setup) -> list[tuple[str, Array, Array]]:
    """(operator as in `sim.cost.roofline`, tokens, ms per layer) of what a profile measures outside attention."""
    if profile.kind == "gemm":
        table = GemmTable(profile.table, profile.file)
        products = [(name, table.time_ms(n, k)[0]) for name, (n, k) in setup.shard.matmuls.items()]
        return [(name, np.asarray(times.index, dtype=np.float64), np.asarray(times, dtype=np.float64))
                for name, times in products]  # fmt: skip
    if profile.kind != "non-attention":
        return []
    rows = _vidur_rows(profile, setup)
    tokens = rows["num_tokens"].to_numpy(dtype=float)
    found = [(name, tokens, rows[column].to_numpy(dtype=float)) for column, name in _VIDUR_NAMES.items()]
    others = rows[[column for column in VIDUR_OPERATORS if column not in _VIDUR_NAMES]].sum(axis=1)
    return [*found, ("elementwise", tokens, others.to_numpy(dtype=float))]


def _vidur_layer(profile: Profile, setup: Setup) -> list[Samples]:
    rows = _vidur_rows(profile, setup)
    total = rows[list(VIDUR_OPERATORS)].sum(axis=1).to_numpy(dtype=float)
    return [layer_samples("non-attention", rows["num_tokens"].to_numpy(dtype=float), total)]


def _vidur_rows(profile: Profile, setup: Setup) -> pd.DataFrame:
    rows = profile.table
    degree = setup.tensor_parallel
    rows = _require(rows[rows["num_tensor_parallel_workers"] == degree], profile, f"tensor parallel degree {degree}")
    shape = (("n_embd", setup.llm.hidden), ("n_expanded_embd", setup.llm.intermediate),
             ("n_head", setup.llm.query_heads), ("n_kv_head", setup.llm.kv_heads))  # fmt: skip
    for column, expected in shape:
        if column in rows and not (rows[column] == expected).all():
            raise InputError(f"is {rows[column].iloc[0]}, but {setup.llm.title} has {expected}", source=profile.file,
                             field=column)  # fmt: skip
    return rows[(rows["num_tokens"] >= 1) & (rows["num_tokens"] <= MOST_TOKENS)]


def _vidur_attention(profile: Profile, setup: Setup) -> list[Samples]:
    rows = profile.table
    notes = []
    if "num_tensor_parallel_workers" in rows:
        rows = rows[rows["num_tensor_parallel_workers"] == setup.tensor_parallel]
    elif setup.tensor_parallel > 1:
        raise InputError("states no tensor parallel degree, so it serves degree 1 only", source=profile.file)
    for column, heads in (("n_q_head", setup.llm.query_heads), ("n_kv_head", setup.llm.kv_heads)):
        if column in rows:
            rows = rows[rows[column] == heads]
        else:
            notes.append(f"{profile.file} states no {column}: taken as measured for {setup.llm.title}")
    rows = _require(rows, profile, setup.name)
    prefills = rows[rows["is_prefill"].astype(bool) & rows["attn_prefill"].notna()]
    decodes = rows[~rows["is_prefill"].astype(bool) & rows["attn_decode"].notna()]
    n, c, m = (prefills[name].to_numpy(dtype=float) for name in ("batch_size", "prefill_chunk_size", "kv_cache_size"))
    fills = fill_samples(n, c, m, prefills["attn_prefill"].to_numpy(dtype=float), notes)
    n, m = (decodes[name].to_numpy(dtype=float) for name in ("batch_size", "kv_cache_size"))
    steps = decode_samples(n, m, decodes["attn_decode"].to_numpy(dtype=float), notes)
    return [one for one in (fills, steps) if len(one.layer_ms)]


def _all_reduce(profile: Profile, setup: Setup) -> list[Samples]:
    degree = setup.tensor_parallel
    if degree == 1:
        return []  # nothing to reduce; the tables of the package come with it all the same
    rows = profile.table
    rows = rows[rows["num_workers"] == degree]
    if "devices_per_node" in rows:
        rows = rows[rows["devices_per_node"] == degree]
    rows = _require(rows, profile, f"{degree} GPUs in one node")
    tokens = rows["size"].to_numpy(dtype=float) / (BYTES_PER_ELEMENT * setup.llm.hidden)
    keep = (tokens >= 1) & (tokens <= MOST_TOKENS)
    twice = 2 * rows["all_reduce"].to_numpy(dtype=float)[keep]
    return [layer_samples("all-reduce", tokens[keep], twice)]


def _gemm(profile: Profile, setup: Setup) -> list[Samples]:
    table = GemmTable(profile.table, profile.file)
    found = {name: table.time_ms(n, k) for name, (n, k) in setup.shard.matmuls.items()}
    between = [name for name, (_, measured) in found.items() if not measured]
    notes = ["elementwise operators by their bytes over the data sheet's bandwidth"]
    if between:
        notes.append(f"{' and '.join(between)} interpolated between shapes of {profile.file}; measured shapes left out "
                     f"and interpolated are off by {table.left_out_error():.1%} on average")  # fmt: skip
    total = pd.concat([times for times, _ in found.values()], axis=1).sum(axis=1, skipna=False).dropna()
    total = total[(total.index >= 1) & (total.index <= MOST_TOKENS)]
    tokens = total.index.to_numpy(dtype=float)
    moved = setup.shard.elementwise_elements_per_token * BYTES_PER_ELEMENT / setup.gpu.bandwidth * 1e3
    return [layer_samples("non-attention", tokens, total.to_numpy() + moved * tokens, notes)]


def _context_attention(profile: Profile, setup: Setup) -> list[Samples]:
    rows, _ = _heads(profile, setup, copies=(1,))
    n, c = rows["batch_size"].to_numpy(dtype=float), rows["isl"].to_numpy(dtype=float)
    keep = n * c <= MOST_TOKENS
    n, c = n[keep], c[keep]
    return [fill_samples(n, c, np.zeros_like(c), rows["latency"].to_numpy(dtype=float)[keep])]


def _generation_attention(profile: Profile, setup: Setup) -> list[Samples]:
    rows, copies = _heads(profile, setup, copies=(1, 2, 4, 8))
    notes = []
    if copies > 1:
        q, kv = setup.shard.query_heads, setup.shard.kv_heads
        notes.append(f"B sequences with {q} query and {kv} KV heads taken as {copies} B with {q // copies} and "
                     f"{kv // copies}: decode attention treats every KV head of every sequence alike")  # fmt: skip
    n, m = rows["batch_size"].to_numpy(dtype=float) / copies, rows["step"].to_numpy(dtype=float)
    keep = (n == np.floor(n)) & (n >= 1) & (n <= MOST_SEQUENCES) & (n * m <= MOST_KV_TOKENS)
    return [decode_samples(n[keep], m[keep], rows["latency"].to_numpy(dtype=float)[keep], notes)]


def _heads(profile: Profile, setup: Setup, copies: Sequence[int]) -> tuple[pd.DataFrame, int]:
    """Rows of this head count, or of a share of it with as many query heads per KV head."""
    rows, shard = profile.table, setup.shard
    rows = rows[rows["head_dim"] == setup.llm.head_dim]
    for factor in copies:
        if shard.query_heads % factor or shard.kv_heads % factor:
            continue
        match = (rows["num_heads"] == shard.query_heads // factor) & (
            rows["num_key_value_heads"] == shard.kv_heads // factor
        )
        if match.any():
            return rows[match], factor
    known = sorted({(int(q), int(kv)) for q, kv in zip(rows["num_heads"], rows["num_key_value_heads"], strict=True)})
    raise InputError(f"has no rows for {shard.query_heads} query and {shard.kv_heads} KV heads per GPU; it has {known}",
                     source=profile.file)  # fmt: skip


def _engine_log(profile: Profile, layers: int) -> Samples:
    rows = profile.table
    values = {name: rows[name].to_numpy(dtype=float) for name in rows.columns}
    if any(np.isnan(column).any() for column in values.values()):
        raise InputError("every batch needs a number in every column", source=profile.file)
    milliseconds = values.pop("batch_ms") / layers
    entries = values["n_prefill"] + values["n_decode"]
    bad = np.flatnonzero((milliseconds <= 0) | (entries < 1) | (values["tokens"] < entries))
    if len(bad):
        raise InputError("a batch needs ms > 0, at least one entry, and at least as many tokens as entries",
                         source=profile.file, field=f"row {bad[0] + 1}")  # fmt: skip
    values |= {
        "batch": np.ones_like(milliseconds),
        "prefill_batch": 1.0 * (values["n_prefill"] > 0),
        "decode_batch": 1.0 * (values["n_decode"] > 0),
    }
    return samples("whole batch", values, milliseconds)


_READERS = {
    "non-attention": _vidur_layer, "attention": _vidur_attention, "all-reduce": _all_reduce, "gemm": _gemm,
    "context attention": _context_attention, "generation attention": _generation_attention,
}  # fmt: skip
