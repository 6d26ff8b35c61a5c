"""Workloads from traces of real services; the format is told by the columns.

Files are read row by row, so a long trace costs what is kept of it. ``.gz`` files are read as they are.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from sim.clock import NS_PER_S
from sim.errors import InputError
from sim.files import exists
from sim.instance import MAX_TOKENS, Request

NS_PER_MS = 10**6


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """The columns of one kind of trace.

    Parameters
    ----------
    arrival
        Column of the arrival; None for lists of lengths, whose requests all arrive at time zero.
    input_tokens, output_tokens
        Columns of I and O.
    clock
        "datetime" (counted from the first row), "s" or "ms" (counted from the trace's own zero).
    json_lines
        Whether rows are JSON objects instead of CSV.
    """

    name: str
    arrival: str | None
    input_tokens: str
    output_tokens: str
    clock: str = "s"
    json_lines: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it needs."""
        return tuple(c for c in (self.arrival, self.input_tokens, self.output_tokens) if c is not None)


FORMATS = (
    TraceFormat("azure", "TIMESTAMP", "ContextTokens", "GeneratedTokens", "datetime"),
    TraceFormat("burstgpt", "Timestamp", "Request tokens", "Response tokens"),
    TraceFormat("servegen", "arrival_s", "input_tokens", "output_tokens"),
    TraceFormat("vidur", "arrived_at", "num_prefill_tokens", "num_decode_tokens"),
    TraceFormat("splitwise", "arrival_timestamp", "prompt_size", "token_size"),
    TraceFormat("mooncake", "timestamp", "input_length", "output_length", "ms", json_lines=True),
    TraceFormat("lengths", None, "input_tokens", "output_tokens"),
    TraceFormat("lengths", None, "prompt_len", "output_len"),
    TraceFormat("lengths", None, "num_prefill_tokens", "num_decode_tokens"),
    TraceFormat("lengths", None, "prompt_len", "output_len", json_lines=True),
    TraceFormat("lengths", None, "input_tokens", "output_tokens", json_lines=True),
)
"""First fit wins: a format with arrivals stands before lists of lengths with the same columns."""

PRIORITY = "priority"
"""Optional column in every format; smaller is more urgent."""


def shipped_traces() -> list[str]:
    """Names of the trace excerpts that come with the package.

    >>> shipped_traces()
    ['azure-conv-200', 'azure-conv-2000', 'servegen-chat-15rps', 'servegen-reason-2rps']
    """
    folder = resources.files("sim") / "data" / "traces"
    return sorted(f.name.removesuffix(".csv") for f in folder.iterdir() if f.name.endswith(".csv"))


def trace_path(name: str | Path) -> Path:
    """The file of a trace: the path itself, or the shipped excerpt of that name."""
    path = Path(name)
    if not exists(path) and str(name) in shipped_traces():
        return Path(str(resources.files("sim") / "data" / "traces" / f"{name}.csv"))
    return path


def read_trace(path: str | Path, *, drop_empty: bool = False) -> Iterator[Request]:
    """The requests of a trace in the order of the file, one by one.

    Parameters
    ----------
    path
        CSV or JSON lines in one of `FORMATS`, or a shipped excerpt's name.
    drop_empty
        Leave out rows without input or output tokens (failed calls in BurstGPT); otherwise they are errors.

    Raises
    ------
    InputError
        With the file, the line, the column, the value and the rule; for unknown columns, the formats that were tried.
    """
    source = str(path)
    with _open(trace_path(path), source) as stream:
        text = _first_line(stream, source)
        rows, found = _json_rows(text, stream, source) if text[0] in "{[" else _csv_rows(text, stream, source)
        yield from _requests(rows, found, source, drop_empty)


@contextmanager
def _open(path: Path, source: str) -> Iterator[io.TextIOBase]:
    try:
        raw: Any = gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb")  # noqa: SIM115
        with raw, io.TextIOWrapper(raw, "utf-8-sig", newline="") as stream:
            yield stream
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", source=source) from None
    except (OSError, EOFError) as error:
        raise InputError(f"cannot be read: {getattr(error, 'strerror', None) or error}", source=source) from None
    except csv.Error as error:
        raise InputError(f"is not CSV: {error}", source=source) from None


def _first_line(stream: io.TextIOBase, source: str) -> str:
    for line in stream:
        if line.strip():
            return line.strip()
    raise InputError("is empty", source=source)


Row = tuple[int, list[Any]]
"""(line, values of the format's columns, then the priority if the file has one)."""


def _csv_rows(head: str, stream: io.TextIOBase, source: str) -> tuple[Iterator[Row], TraceFormat]:
    header = [column.strip() for column in next(csv.reader([head]))]
    found = _detect(header, False, source)
    wanted = [header.index(c) for c in (*found.columns, PRIORITY) if c in header]

    def rows() -> Iterator[Row]:
        reader = csv.reader(stream)
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                raise InputError(f"has {len(row)} columns, the header {len(header)}", source=source,
                                 field=f"line {reader.line_num + 1}")  # fmt: skip
            yield reader.line_num + 1, [row[c] for c in wanted]

    return rows(), found


def _json_rows(head: str, stream: io.TextIOBase, source: str) -> tuple[Iterator[Row], TraceFormat]:
    """JSON lines; or one JSON list of objects or [input, output] pairs, which is read whole."""
    lines = _json_list(head + stream.read(), source) if head[0] == "[" else _json_lines(head, stream, source)
    first_line, first = next(lines, (1, None))
    pairs = isinstance(first, list)
    if first is None:
        raise InputError("has no requests", source=source)
    found = next(f for f in FORMATS if f.arrival is None) if pairs else _detect(_keys(first, 1, source), True, source)

    def rows() -> Iterator[Row]:
        for number, data in _chain((first_line, first), lines):
            if pairs:
                if not isinstance(data, list) or len(data) != 2:
                    raise InputError("must be a pair [input tokens, output tokens]", source=source,
                                     field=f"line {number}", value=data)  # fmt: skip
                yield number, data
                continue
            keys = _keys(data, number, source)
            for column in found.columns:
                if column not in keys:
                    raise InputError(f"missing; every {found.name} row needs it", source=source,
                                     field=f"line {number}.{column}")  # fmt: skip
            yield number, [data[c] for c in (*found.columns, PRIORITY) if c in data]

    return rows(), found


def _chain(first: tuple[int, Any], rest: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    yield first
    yield from rest


def _json_list(text: str, source: str) -> Iterator[tuple[int, Any]]:
    data = _parse_json(text, source, "the list")
    return enumerate(data if isinstance(data, list) else [], 1)


def _json_lines(head: str, stream: io.TextIOBase, source: str) -> Iterator[tuple[int, Any]]:
    yield 1, _parse_json(head, source, "line 1")
    for number, line in enumerate(stream, 2):
        if line.strip():
            yield number, _parse_json(line, source, f"line {number}")


def _parse_json(text: str, source: str, field: str) -> Any:
    try:
        return json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON: {getattr(error, 'msg', error)}", source=source, field=field) from None


def _keys(data: Any, number: int, source: str) -> list[str]:
    if not isinstance(data, dict):
        raise InputError("must be a JSON object", source=source, field=f"line {number}", value=data)
    return list(data)


def _detect(columns: list[str], json_lines: bool, source: str) -> TraceFormat:
    formats = [f for f in FORMATS if f.json_lines == json_lines]
    for candidate in formats:
        if all(c in columns for c in candidate.columns):
            return candidate
    nearest = max(formats, key=lambda f: (sum(c in columns for c in f.columns), len(f.columns)))
    missing = [c for c in nearest.columns if c not in columns]
    tried = "; ".join(f"{f.name} ({','.join(f.columns)})" for f in formats)
    lacks = f"{nearest.name} would need {', '.join(missing)}; " if len(missing) < len(nearest.columns) else ""
    raise InputError(f"fit no known trace format; {lacks}tried: {tried}", source=source, field="columns",
                     value=",".join(columns))  # fmt: skip


def _requests(rows: Iterator[Row], found: TraceFormat, source: str, drop_empty: bool) -> Iterator[Request]:
    read_clock = _CLOCKS[found.clock]
    timed = found.arrival is not None
    start_ns: int | None = None
    empty = True
    for number, values in rows:
        empty = False
        where = f"line {number}"
        arrival_ns = 0
        if timed:
            try:
                arrival_ns = read_clock(values[0])
            except (ValueError, ArithmeticError, TypeError):
                raise InputError(_CLOCK_RULES[found.clock], source=source, field=f"{where}.{found.arrival}",
                                 value=values[0]) from None  # fmt: skip
            if found.clock == "datetime":
                start_ns = arrival_ns if start_ns is None else start_ns
                arrival_ns -= start_ns
            if arrival_ns < 0 or arrival_ns > 2**62:
                rule = "earlier than the first row" if found.clock == "datetime" else _CLOCK_RULES[found.clock]
                raise InputError(rule, source=source, field=f"{where}.{found.arrival}", value=values[0])
        inputs = _count(values[timed], source, where, found.input_tokens)
        outputs = _count(values[timed + 1], source, where, found.output_tokens)
        if inputs == 0 or outputs == 0:
            if drop_empty:
                continue
            column = found.input_tokens if inputs == 0 else found.output_tokens
            raise InputError("must be an integer >= 1; --drop-empty leaves such rows out", source=source,
                             field=f"{where}.{column}", value=0)  # fmt: skip
        priority = 0
        if len(values) > len(found.columns):
            priority = _count(values[-1], source, where, PRIORITY)
        yield Request(inputs, outputs, arrival_ns, priority)
    if empty:
        raise InputError("has no requests", source=source)


def _count(value: Any, source: str, where: str, column: str) -> int:
    """A whole number >= 0, from text or JSON; "12.0" counts as whole (pandas writes it so)."""
    try:
        if isinstance(value, bool):
            raise ValueError
        number = int(value) if isinstance(value, str) and value.isdecimal() else Decimal(str(value).strip())
        if number != int(number) or not 0 <= number <= MAX_TOKENS:
            raise ValueError
        return int(number)
    except (ValueError, ArithmeticError):
        raise InputError("must be an integer >= 1", source=source, field=f"{where}.{column}", value=value) from None


_DATETIME = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:?\d\d)?")


@lru_cache(maxsize=1024)
def _epoch_s(text: str, zone: str) -> int:
    moment = datetime.fromisoformat(text + (zone or "+00:00"))
    return int((moment - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds())  # noqa: UP017


def _datetime_ns(text: str) -> int:
    """Nanoseconds since 1970; fractions of a second may have any number of digits."""
    match = _DATETIME.fullmatch(text.strip())
    if match is None:
        raise ValueError
    whole, fraction, zone = match.groups("")
    return _epoch_s(whole, zone) * NS_PER_S + int(fraction[:9].ljust(9, "0"))


def _decimal_ns(value: Any, unit_ns: int) -> int:
    if isinstance(value, bool):
        raise ValueError
    number = Decimal(str(value).strip())
    if not number.is_finite():
        raise ValueError
    return round(number * unit_ns)


_CLOCKS: dict[str, Callable[[Any], int]] = {
    "datetime": _datetime_ns,
    "s": lambda value: _decimal_ns(value, NS_PER_S),
    "ms": lambda value: _decimal_ns(value, NS_PER_MS),
}
_CLOCK_RULES = {
    "datetime": "must be a time like 2023-11-16 18:15:46.68",
    "s": "must be a number of seconds >= 0",
    "ms": "must be a number of milliseconds >= 0",
}
