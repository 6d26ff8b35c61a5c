"""Requests and instances: what there is to schedule, and on which machine.

Formats: YAML or JSON with the keys ``kv_capacity_tokens`` (M), ``token_budget`` (C), ``requests`` and the optional ones
listed in `Instance`. Symbols follow Kim et al. (arXiv:2411.07447), section 7.1: I input tokens, O output tokens, M KV
capacity, C token budget.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from importlib import resources
from pathlib import Path
from typing import Any

from sim.clock import NS_PER_S
from sim.errors import InputError
from sim.files import exists, parse_text, read_text
from sim.registry import unknown

SCHEMA_VERSION = 1
MAX_REQUESTS = 1_000_000
MAX_TOKENS = 2**31 - 1
DEFAULT_COST_MODEL = "linear/llama2-7b-a100"

_INSTANCE_KEYS = (
    "schema_version", "name", "kv_capacity_tokens", "token_budget", "max_num_seqs", "block_size", "cost_model",
    "objective", "requests",
)  # fmt: skip
_REQUEST_KEYS = (
    "count", "input_tokens", "output_tokens", "arrival_s", "priority", "id", "prefix", "prefix_tokens", "prefilled",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Parameters
    ----------
    input_tokens
        I, prompt tokens, >= 1.
    output_tokens
        O, tokens to generate, >= 1.
    arrival_ns
        Arrival in nanoseconds from time zero, >= 0.
    priority
        Smaller is more urgent.
    id
        Name in files; None lets the instance number it.
    prefix
        Name of a prompt prefix it shares with other requests; only counts where the rules allow prefix sharing.
    prefix_tokens
        Tokens of that prefix, at most I - 1 (the last prompt token is always a request's own); the same for all that
        share it.
    prefilled
        Its prefill was done elsewhere: it arrives with one token generated and its I KVs in host memory, to be swapped
        in (disaggregated serving). O is then at least 2.
    """

    input_tokens: int
    output_tokens: int
    arrival_ns: int = 0
    priority: int = 0
    id: str | None = None
    prefix: str | None = None
    prefix_tokens: int = 0
    prefilled: bool = False

    def __post_init__(self) -> None:
        _integer("input_tokens", self.input_tokens, 1, MAX_TOKENS)
        _integer("output_tokens", self.output_tokens, 1, MAX_TOKENS)
        _integer("arrival_ns", self.arrival_ns, 0, 2**62)
        _integer("priority", self.priority, -MAX_TOKENS, MAX_TOKENS)
        _integer("prefix_tokens", self.prefix_tokens, 0 if self.prefix is None else 1, self.input_tokens - 1)
        if self.prefix is None and self.prefix_tokens:
            raise InputError("needs the name of the prefix", field="prefix_tokens", value=self.prefix_tokens)
        if self.prefilled and self.output_tokens < 2:
            raise InputError("a prefilled request has O >= 2: its first token is already there", field="output_tokens",
                             value=self.output_tokens)  # fmt: skip

    @property
    def arrival_s(self) -> float:
        """Arrival in seconds."""
        return self.arrival_ns / NS_PER_S

    @property
    def peak_kv_tokens(self) -> int:
        """I + O - 1: the last token's KV is never stored."""
        return self.input_tokens + self.output_tokens - 1


@dataclass(frozen=True, slots=True)
class Instance:
    """Requests with the limits and the cost model they are scheduled under.

    Parameters
    ----------
    requests
        At least one, at most 1,000,000.
    kv_capacity_tokens
        M, KV tokens that fit in memory. With blocks of b tokens: floor(M / b) blocks.
    token_budget
        C, most tokens one batch may process.
    max_num_seqs
        Most requests one batch may process; None for no cap.
    block_size
        KV tokens per block; a request holding m KVs occupies ceil(m / b) blocks.
    cost_model
        Name ("linear/llama2-7b-a100") or path of a cost model file.
    objective
        Name of the objective to minimise.
    name
        For tables and file names.
    """

    requests: tuple[Request, ...]
    kv_capacity_tokens: int
    token_budget: int = 4096
    max_num_seqs: int | None = None
    block_size: int = 1
    cost_model: str = DEFAULT_COST_MODEL
    objective: str = "makespan"
    name: str = "instance"

    def __post_init__(self) -> None:
        _integer("kv_capacity_tokens", self.kv_capacity_tokens, 1, MAX_TOKENS)
        _integer("token_budget", self.token_budget, 1, MAX_TOKENS)
        _integer("block_size", self.block_size, 1, MAX_TOKENS)
        if self.max_num_seqs is not None:
            _integer("max_num_seqs", self.max_num_seqs, 1, MAX_TOKENS)
        if not self.requests:
            raise InputError("must hold at least one request", field="requests", value=[])
        if len(self.requests) > MAX_REQUESTS:
            raise InputError(f"at most {MAX_REQUESTS:,} requests", field="requests", value=len(self.requests))
        if any(request.id is not None for request in self.requests):
            _unique_ids(self.ids)
        _same_prefixes(self.requests)

    @property
    def kv_blocks(self) -> int:
        """Blocks that fit in memory: floor(M / block size)."""
        return self.kv_capacity_tokens // self.block_size

    def blocks(self, kv_tokens: int) -> int:
        """Blocks that hold this many KVs of one request."""
        return -(-kv_tokens // self.block_size)

    @property
    def offline(self) -> bool:
        """Whether every request arrives at time zero."""
        return all(request.arrival_ns == 0 for request in self.requests)

    @property
    def ids(self) -> tuple[str, ...]:
        """Unique ids in order; unnamed requests are called by their position."""
        return tuple(str(i) if r.id is None else r.id for i, r in enumerate(self.requests))

    def infeasible(self) -> tuple[int, ...]:
        """Indices of requests that can never fit: their I + O - 1 KVs need more blocks than there are."""
        return tuple(i for i, r in enumerate(self.requests) if self.blocks(r.peak_kv_tokens) > self.kv_blocks)

    def require_feasible(self, source: str | None = None) -> None:
        """Raise an `InputError` naming the first request that can never fit."""
        for i in self.infeasible():
            r = self.requests[i]
            raise InputError(
                f"needs I + O - 1 = {r.peak_kv_tokens} KV tokens, more than kv_capacity_tokens = "
                f"{self.kv_capacity_tokens} can hold; leave such requests out with --drop-infeasible",
                source=source, field=f"request {self.ids[i]}", value=f"I={r.input_tokens} O={r.output_tokens}",
            )  # fmt: skip

    def replace(self, **changes: Any) -> Instance:
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """The instance in the file format; runs of equal unnamed requests are written once with a count.

        Arrivals are seconds as floats, so their nanosecond is exact up to 2^52 ns (52 days).
        """
        entries: list[dict[str, Any]] = []
        last: Request | None = None
        for request in self.requests:
            if entries and request.id is None and request == last:
                entries[-1]["count"] += 1
                continue
            entry: dict[str, Any] = {"count": 1, "input_tokens": request.input_tokens,
                                     "output_tokens": request.output_tokens}  # fmt: skip
            if request.arrival_ns:
                entry["arrival_s"] = request.arrival_s
            if request.priority:
                entry["priority"] = request.priority
            if request.id is not None:
                entry["id"] = request.id
            if request.prefix is not None:
                entry |= {"prefix": request.prefix, "prefix_tokens": request.prefix_tokens}
            if request.prefilled:
                entry["prefilled"] = True
            entries.append(entry)
            last = request
        data: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "name": self.name}
        data |= {"kv_capacity_tokens": self.kv_capacity_tokens, "token_budget": self.token_budget}
        if self.max_num_seqs is not None:
            data["max_num_seqs"] = self.max_num_seqs
        if self.block_size != 1:
            data["block_size"] = self.block_size
        data |= {"cost_model": self.cost_model, "objective": self.objective, "requests": entries}
        return data


def load_instance(path: str | Path) -> Instance:
    """Read an instance from a YAML or JSON file, or a shipped one by name.

    Raises
    ------
    InputError
        With the file, the field, the value and the rule.

    Examples
    --------
    >>> load_instance("paper-7.2-i0032").kv_capacity_tokens
    64
    """
    file = Path(path)
    if not exists(file):
        if str(path) not in shipped_instances():
            raise InputError("no such file, and not a shipped instance: " + unknown(str(path), shipped_instances()),
                             source=str(path))  # fmt: skip
        shipped = resources.files("sim") / "data" / "instances" / f"{path}.yaml"
        return instance_from_dict(parse_text(shipped.read_text("utf-8"), str(path)), str(path))
    data = parse_text(read_text(file), str(path))
    instance = instance_from_dict(data, str(path))
    beside = file.parent / instance.cost_model
    if beside.suffix == ".json" and beside.is_file():
        instance = instance.replace(cost_model=str(beside))
    return instance.replace(name=file.stem) if "name" not in data else instance


def shipped_instances() -> list[str]:
    """Names of the instances that come with the package."""
    folder = resources.files("sim") / "data" / "instances"
    return sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml"))


def instance_from_dict(data: object, source: str | None = None) -> Instance:
    """Build an instance from parsed YAML or JSON.

    Raises
    ------
    InputError
        For unknown, missing or bad fields; names the nearest known key.
    """
    try:
        return _build(data)
    except InputError as error:
        if error.source is not None or source is None:
            raise
        raise InputError(error.rule, source=source, field=error.field, value=error.value) from None


def _build(data: object) -> Instance:
    if not isinstance(data, Mapping):
        raise InputError("an instance must be a mapping of keys to values", value=type(data).__name__)
    _known_keys(data, _INSTANCE_KEYS, "")
    if data.get("schema_version", SCHEMA_VERSION) != SCHEMA_VERSION:
        raise InputError(f"this version reads {SCHEMA_VERSION}", field="schema_version", value=data["schema_version"])
    for key in ("kv_capacity_tokens", "token_budget", "requests"):
        if key not in data:
            raise InputError("missing; every instance needs it", field=key)
    for key in ("name", "cost_model", "objective"):
        if key in data and not (isinstance(data[key], str) and data[key]):
            raise InputError("must be a non-empty string", field=key, value=data[key])
    entries = data["requests"]
    if not isinstance(entries, list) or not entries:
        raise InputError("must be a list of at least one request", field="requests", value=entries)
    # The large counts are checked before anything is expanded.
    requests = tuple(_expand(entries))
    plain = {k: data[k] for k in _INSTANCE_KEYS[1:-1] if k in data}
    return Instance(requests=requests, **plain)


def _expand(entries: list[object]) -> Iterable[Request]:
    total = 0
    expanded: list[Request] = []
    for position, entry in enumerate(entries):
        where = f"requests[{position}]"
        if not isinstance(entry, Mapping):
            raise InputError("must be a mapping with input_tokens and output_tokens", field=where, value=entry)
        _known_keys(entry, _REQUEST_KEYS, where + ".")
        for key in ("input_tokens", "output_tokens"):
            if key not in entry:
                raise InputError("missing; every request needs it", field=f"{where}.{key}")
            _integer(f"{where}.{key}", entry[key], 1, MAX_TOKENS)
        count = _integer(f"{where}.count", entry.get("count", 1), 1, MAX_TOKENS)
        total += count
        if total > MAX_REQUESTS:
            raise InputError(f"at most {MAX_REQUESTS:,} requests in all", field=f"{where}.count", value=count)
        arrival_ns = parse_seconds(f"{where}.arrival_s", entry.get("arrival_s", 0))
        priority = _integer(f"{where}.priority", entry.get("priority", 0), -MAX_TOKENS, MAX_TOKENS)
        name = entry.get("id")
        if name is not None and not (isinstance(name, str | int) and not isinstance(name, bool) and str(name)):
            raise InputError("must be a non-empty string", field=f"{where}.id", value=name)
        shared = _shared(entry, where)
        for copy in range(count):
            label = None if name is None else str(name) if count == 1 else f"{name}-{copy}"
            if copy == 0 or label is not None:
                request = Request(entry["input_tokens"], entry["output_tokens"], arrival_ns, priority, label, **shared)
            expanded.append(request)
    return expanded


def _shared(entry: Mapping[Any, Any], where: str) -> dict[str, Any]:
    """The fields for prefix sharing and disaggregation."""
    prefix, prefilled = entry.get("prefix"), entry.get("prefilled", False)
    if prefix is not None and not (isinstance(prefix, str) and prefix):
        raise InputError("must be a non-empty string", field=f"{where}.prefix", value=prefix)
    if not isinstance(prefilled, bool):
        raise InputError("must be true or false", field=f"{where}.prefilled", value=prefilled)
    tokens = entry.get("prefix_tokens", 0)
    if prefix is None and "prefix_tokens" in entry:
        raise InputError("needs the name of the prefix", field=f"{where}.prefix_tokens", value=tokens)
    if prefix is not None:
        _integer(f"{where}.prefix_tokens", entry.get("prefix_tokens"), 1, entry["input_tokens"] - 1)
    if prefilled and entry["output_tokens"] < 2:
        raise InputError("a prefilled request has O >= 2: its first token is already there",
                         field=f"{where}.output_tokens", value=entry["output_tokens"])  # fmt: skip
    return {"prefix": prefix, "prefix_tokens": tokens, "prefilled": prefilled}


def _same_prefixes(requests: tuple[Request, ...]) -> None:
    known: dict[str, int] = {}
    for request in requests:
        tokens = request.prefix_tokens
        if request.prefix is not None and known.setdefault(request.prefix, tokens) != tokens:
            raise InputError(f"all requests that share prefix {request.prefix!r} must give the same length",
                             field="requests.prefix_tokens", value=request.prefix_tokens)  # fmt: skip


def _unique_ids(ids: tuple[str, ...]) -> None:
    seen: set[str] = set()
    for label in ids:
        if label in seen:
            raise InputError("used twice; ids must be unique (unnamed requests are called by position)",
                             field="requests.id", value=label)  # fmt: skip
        seen.add(label)


def parse_seconds(field: str, value: object) -> int:
    """Seconds >= 0 as whole nanoseconds, exactly; rejects NaN, infinity, booleans and text."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise InputError("must be a number of seconds >= 0", field=field, value=value)
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError("must be a finite number of seconds >= 0", field=field, value=value)
    try:
        nanoseconds = round(Decimal(str(value)) * NS_PER_S)
    except (InvalidOperation, ValueError, OverflowError):
        raise InputError("must be a finite number of seconds >= 0", field=field, value=value) from None
    if not 0 <= nanoseconds <= 2**62:
        raise InputError("must be a number of seconds from 0 to 4.6e9", field=field, value=value)
    return nanoseconds


def _integer(field: str, value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"must be an integer >= {least}" if least >= 0 else "must be an integer",
                         field=field, value=value)  # fmt: skip
    if value < least:
        raise InputError(f"must be an integer >= {least}", field=field, value=value)
    if value > most:
        raise InputError(f"must be an integer <= {most:,}", field=field, value=value)
    return value


def _known_keys(data: Mapping[Any, Any], known: tuple[str, ...], prefix: str) -> None:
    for key in data:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.3)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"
            raise InputError(f"unknown key; {hint}", field=f"{prefix}{key}")
