"""Read measured profiles and recognise their format by their columns.

Formats
-------
* Vidur (microsoft/vidur, ``data/profiling``): non-attention operators (``mlp.csv``), ``attention.csv`` and
  ``all_reduce.csv``, with its own column names (``time_stats.mlp_up_proj.median``) or short ones (``mlp_up_proj_ms``).
* Operator tables of aiconfigurator (NVIDIA), CSV or parquet: gemm (m, n, k), context attention, generation attention,
  all-reduce. Milliseconds per call.
* A log of a live engine, CSV or JSON lines, one row a batch: the features of a batch and the measured milliseconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sim.errors import InputError

if TYPE_CHECKING:
    from pandas import DataFrame

VIDUR_OPERATORS = (
    "input_layernorm", "attn_pre_proj", "attn_rope", "attn_post_proj", "post_attention_layernorm", "mlp_up_proj",
    "mlp_act", "mlp_down_proj", "add",
)  # fmt: skip
"""Operators of one layer outside attention; the embedding is not part of a layer."""

ENGINE_COLUMNS = {
    "n_prefill": "n_p", "n_decode": "n_d", "tokens": "T", "prefill_square": "Q", "prefill_reads": "P",
    "decode_reads": "D", "batch_ms": "ms",
}  # fmt: skip
"""Columns of an engine log and their short names."""

PACKAGE = "aiconfigurator"
_PACKAGE_OPERATORS = ("gemm/vllm/*/gemm_perf.parquet", "attention/vllm/*/context_attention_perf.parquet",
                      "attention/vllm/*/generation_attention_perf.parquet",
                      "comm/vllm/*/custom_allreduce_perf.parquet")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Profile:
    """One measured table.

    Parameters
    ----------
    kind
        "non-attention", "attention", "all-reduce", "gemm", "context attention", "generation attention" or "engine log".
    table
        Its rows, columns renamed to one form per kind, times in ms.
    file
        Name of the file it came from.
    digest
        SHA-256 of that file.
    """

    kind: str
    table: DataFrame
    file: str
    digest: str


def read_profiles(source: str, gpu: str | None = None) -> list[Profile]:
    """Read one file, or with "aiconfigurator" the tables of the installed package for a GPU.

    Raises
    ------
    InputError
        If the file is missing, unreadable or of no known format, or the package is not installed.
    """
    if source == PACKAGE:
        return [_read(path) for path in _package_files(gpu or "")]
    return [_read(Path(source))]


def _package_files(gpu: str) -> list[Path]:
    spec = find_spec("aiconfigurator_core")
    if spec is None or not spec.submodule_search_locations:
        raise InputError("the package aiconfigurator-core is not installed (pip install 'servebound[calibrate]')",
                         field="PROFILE", value=PACKAGE)  # fmt: skip
    folder = Path(next(iter(spec.submodule_search_locations))) / "systems" / "data" / f"{gpu}_sxm"
    found = []
    for pattern in _PACKAGE_OPERATORS:
        newest = max(folder.glob(pattern), key=lambda path: _version(path.parent.name), default=None)
        if newest is None:
            raise InputError(f"the installed package has no {pattern} for {gpu}_sxm", field="PROFILE", value=PACKAGE)
        found.append(newest)
    return found


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def _read(path: Path) -> Profile:
    import pandas as pd

    try:
        digest = sha256(path.read_bytes()).hexdigest()
        if path.suffix == ".parquet":
            table = pd.read_parquet(path)
        elif path.suffix in (".jsonl", ".ndjson"):
            table = pd.read_json(path, lines=True)
        else:
            table = pd.read_csv(path)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", source=str(path)) from None
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(f"is not a table: {error}", source=str(path)) from None
    if table.empty:
        raise InputError("has no rows", source=str(path))
    kind, rows = _recognise(table, str(path))
    return Profile(kind, _checked(rows, str(path)), path.name, digest)


def _recognise(table: DataFrame, source: str) -> tuple[str, DataFrame]:
    """Kind of a table, and its rows in one form."""
    rows = table.rename(columns=lambda name: _plain(str(name)))
    names = set(rows.columns)
    if {"num_tokens", "mlp_up_proj"} <= names:
        return "non-attention", _vidur_layer(rows, source)
    if {"batch_size", "prefill_chunk_size", "kv_cache_size", "is_prefill"} <= names:
        return "attention", rows
    if {"num_workers", "size", "all_reduce"} <= names:
        return "all-reduce", rows.loc[rows["collective"] == "all_reduce"] if "collective" in rows else rows
    if {"m", "n", "k", "latency"} <= names:
        return "gemm", _bf16(rows, "gemm_dtype")
    if {"num_gpus", "message_size", "latency"} <= names:
        return "all-reduce", _message_table(rows)
    if {"batch_size", "isl", "step", "num_heads", "num_key_value_heads", "latency"} <= names:
        rows = _bf16(_bf16(rows, "attn_dtype"), "kv_cache_dtype")
        for column, value in (("window_size", 0), ("beam_width", 1)):
            if column in rows:
                rows = rows[rows[column] == value]
        return ("context attention" if (rows["step"] == 0).all() else "generation attention"), rows
    engine = {short: name for name, short in ENGINE_COLUMNS.items()}
    rows = table.rename(columns=engine)
    missing = [name for name in ENGINE_COLUMNS if name not in rows.columns]
    if len(missing) < 3:
        if missing:
            raise InputError(f"a log of batches also needs the columns {', '.join(missing)}", source=source)
        return "engine log", rows[list(ENGINE_COLUMNS)]
    raise InputError(
        "its columns are those of no known profile (Vidur, aiconfigurator, or a log of batches with "
        f"{', '.join(ENGINE_COLUMNS)})", source=source, field="columns", value=", ".join(map(str, table.columns)),
    )  # fmt: skip


def _plain(name: str) -> str:
    """Name of a timed operator without what says that it is a median in ms."""
    match = re.fullmatch(r"time_stats\.(.+)\.median", name)
    return match[1] if match else re.sub(r"(_median)?_ms$", "", name)


def _vidur_layer(rows: DataFrame, source: str) -> DataFrame:
    missing = [name for name in VIDUR_OPERATORS if name not in rows.columns]
    if missing:
        raise InputError(f"lacks the operators {', '.join(missing)}", source=source)
    if "num_tensor_parallel_workers" not in rows:
        rows = rows.assign(num_tensor_parallel_workers=1)
    return rows


def _bf16(rows: DataFrame, column: str) -> DataFrame:
    return rows[rows[column].isin(["bfloat16", "float16"])] if column in rows else rows


def _message_table(rows: DataFrame) -> DataFrame:
    """All-reduce by elements sent, as engines with captured graphs do it, in the form of Vidur's table."""
    if "backend" in rows:
        rows = rows[rows["backend"] == "vllm_graph"]
    # The package counts elements; Vidur counts bytes (two per element).
    return rows.rename(columns={"num_gpus": "num_workers", "latency": "all_reduce"}).assign(
        size=lambda table: table["message_size"] * 2
    )


def _checked(rows: DataFrame, source: str) -> DataFrame:
    """Refuse times that are not positive and counts that are negative."""
    numbers = rows.select_dtypes("number")
    if rows.empty or np.isinf(numbers.to_numpy(dtype=float, na_value=np.nan)).any():
        raise InputError("has no usable rows" if rows.empty else "holds an infinite number", source=source)
    negative = numbers.columns[(numbers < 0).any()]
    if len(negative):
        raise InputError("must not be negative", source=source, field=str(negative[0]))
    return rows.reset_index(drop=True)
