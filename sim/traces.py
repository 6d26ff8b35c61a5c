"""Workloads from traces of real services."""

from __future__ import annotations

import csv
from datetime import datetime
from decimal import Decimal
from importlib import resources
from itertools import islice
from pathlib import Path

from sim.clock import NS_PER_S
from sim.errors import InputError
from sim.instance import MAX_REQUESTS, MAX_TOKENS, Request


def shipped_traces() -> list[str]:
    """Names of the trace excerpts that come with the package.

    >>> shipped_traces()
    ['azure-conv-200']
    """
    folder = resources.files("sim") / "data" / "traces"
    return sorted(f.name.removesuffix(".csv") for f in folder.iterdir() if f.name.endswith(".csv"))


def trace_path(name: str | Path) -> Path:
    """The file of a trace: the path itself, or the shipped excerpt of that name."""
    path = Path(name)
    if not path.exists() and str(name) in shipped_traces():
        return Path(str(resources.files("sim") / "data" / "traces" / f"{name}.csv"))
    return path


AZURE_2023 = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def read_azure_2023(path: str | Path, first: int | None = None) -> tuple[Request, ...]:
    """Requests of an Azure LLM inference trace (2023 columns), arrivals counted from the first row.

    Parameters
    ----------
    path
        CSV with the columns TIMESTAMP, ContextTokens, GeneratedTokens.
    first
        Only this many rows.

    Raises
    ------
    InputError
        With the file, the line, the column, the value and the rule.
    """
    source = str(path)
    try:
        with open(path, newline="", encoding="utf-8") as stream:
            rows = csv.reader(stream)
            header = next(rows, None)
            if header is None:
                raise InputError("is empty", source=source)
            missing = [c for c in AZURE_2023 if c not in header]
            if missing:
                raise InputError(f"missing column; an Azure 2023 trace has {','.join(AZURE_2023)}", source=source,
                                 field=missing[0])  # fmt: skip
            columns = [header.index(c) for c in AZURE_2023]
            requests: list[Request] = []
            start_ns: int | None = None
            for row in islice(rows, first if first is not None else MAX_REQUESTS + 1):
                where = f"line {rows.line_num}"
                if len(row) != len(header):
                    raise InputError(f"has {len(row)} columns, the header {len(header)}", source=source, field=where)
                time, prompt, output = (row[c] for c in columns)
                now = _nanoseconds(time, source, f"{where}.TIMESTAMP")
                start_ns = now if start_ns is None else start_ns
                if now < start_ns:
                    raise InputError("earlier than the first row", source=source, field=f"{where}.TIMESTAMP",
                                     value=time)  # fmt: skip
                inputs = _tokens(prompt, source, f"{where}.ContextTokens")
                outputs = _tokens(output, source, f"{where}.GeneratedTokens")
                requests.append(Request(inputs, outputs, now - start_ns))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=source) from None
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", source=source) from None
    except csv.Error as error:
        raise InputError(f"is not CSV: {error}", source=source) from None
    if not requests:
        raise InputError("has no requests", source=source)
    if len(requests) > MAX_REQUESTS:
        raise InputError(f"more than {MAX_REQUESTS:,} requests; use --first N", source=source)
    return tuple(requests)


def _nanoseconds(text: str, source: str, field: str) -> int:
    """Nanoseconds since the epoch; fractions of a second may have any number of digits."""
    whole, _, fraction = text.strip().partition(".")
    try:
        seconds = int((datetime.fromisoformat(whole) - datetime(1970, 1, 1)).total_seconds())
        return seconds * NS_PER_S + int(Decimal(f"0.{fraction or 0}") * NS_PER_S)
    except (ValueError, ArithmeticError, TypeError):
        raise InputError("must be a time like 2023-11-16 18:15:46.68", source=source, field=field,
                         value=text) from None  # fmt: skip


def _tokens(text: str, source: str, field: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= MAX_TOKENS:
        raise InputError("must be an integer >= 1", source=source, field=field, value=text)
    return value
