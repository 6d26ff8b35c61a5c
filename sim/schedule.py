"""Schedules: what every batch does. Whoever a batch does not name holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sim.errors import InputError
from sim.files import parse_text, read_text
from sim.instance import SCHEMA_VERSION, Instance
from sim.registry import unknown


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch, by request index.

    Parameters
    ----------
    process
        (request, tokens c >= 1) in the order the scheduler placed them.
    preempt
        Requests whose KVs are dropped.
    start_ns
        Start in nanoseconds; None for as early as possible (back to back, or when the processed requests have arrived).
    swap_out, swap_in
        Requests whose KVs move to host memory, or back (only where swapping is allowed).
    abandon
        Requests that leave unfinished (only where abandoning is allowed).
    drop_prefix
        Shared prefixes, by name, whose KVs are dropped; nobody may be using them (only where prefixes are shared).
    """

    process: tuple[tuple[int, int], ...]
    preempt: tuple[int, ...] = ()
    start_ns: int | None = None
    swap_out: tuple[int, ...] = ()
    swap_in: tuple[int, ...] = ()
    abandon: tuple[int, ...] = ()
    drop_prefix: tuple[str, ...] = ()

    def starting(self, start_ns: int) -> Batch:
        """The batch with a start."""
        return replace(self, start_ns=start_ns)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Batches in order. Not known to be valid until `sim.replay.replay` has accepted it.

    Parameters
    ----------
    batches
        Any sequence of `Batch`; a tuple, or a view that builds them on the fly for large schedules.
    """

    batches: Sequence[Batch]

    def __len__(self) -> int:
        return len(self.batches)


_SCHEDULE_KEYS = ("schema_version", "requests", "batches", "name")
_BATCH_KEYS = ("start_ns", "end_ns", "process", "preempt", "swap_out", "swap_in", "abandon", "drop_prefix")
_OPTIONAL_LISTS = ("preempt", "swap_out", "swap_in", "abandon")


def schedule_to_dict(schedule: Schedule, instance: Instance, times_ns: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """The schedule in the file format, with the times a replay gave it.

    Parameters
    ----------
    times_ns
        (start, end) of each batch in nanoseconds, as from `sim.replay.Replay.times_ns`.
    """
    batches = []
    for batch, (start, end) in zip(schedule.batches, times_ns, strict=True):
        entry: dict[str, Any] = {"start_ns": start, "end_ns": end, "process": [list(p) for p in batch.process],
                                 "preempt": list(batch.preempt)}  # fmt: skip
        optional = (*_OPTIONAL_LISTS[1:], "drop_prefix")
        entry |= {key: list(getattr(batch, key)) for key in optional if getattr(batch, key)}
        batches.append(entry)
    return {"schema_version": SCHEMA_VERSION, "requests": list(instance.ids), "batches": batches}


def load_schedule(path: str | Path, instance: Instance) -> tuple[Schedule, list[tuple[int | None, int | None]]]:
    """Read a schedule file (or a result file that holds one under "schedule") for an instance.

    Returns
    -------
    Schedule and, per batch, the (start_ns, end_ns) the file claims.

    Raises
    ------
    InputError
        With the file, the field, the value and the rule.
    """
    text = read_text(Path(path))
    data = parse_text(text, str(path))
    if isinstance(data, Mapping) and "schedule" in data:
        data = data["schedule"]
        if data is None:
            raise InputError("this result holds no schedule", source=str(path), field="schedule")
    return schedule_from_dict(data, instance, str(path))


def schedule_from_dict(
    data: object, instance: Instance, source: str
) -> tuple[Schedule, list[tuple[int | None, int | None]]]:
    """Build a schedule from its file form; see `load_schedule`."""

    def fail(rule: str, field: str, *value: object) -> InputError:
        return InputError(rule, source=source, field=field, value=value[0]) if value else InputError(
            rule, source=source, field=field)  # fmt: skip

    if not isinstance(data, Mapping):
        raise InputError("a schedule must be a mapping with requests and batches", source=source)
    for key in data:
        if key not in _SCHEDULE_KEYS:
            raise fail(unknown(str(key), list(_SCHEDULE_KEYS)), str(key))
    if data.get("schema_version", SCHEMA_VERSION) != SCHEMA_VERSION:
        raise fail(f"this version reads {SCHEMA_VERSION}", "schema_version", data["schema_version"])
    if not isinstance(data.get("batches"), list):
        raise fail("missing or not a list", "batches")
    if "requests" in data and data["requests"] != list(instance.ids):
        raise fail("must list the instance's request ids in order", "requests", data["requests"])
    batches, times = [], []
    for j, entry in enumerate(data["batches"]):
        where = f"batches[{j}]"
        if not isinstance(entry, Mapping):
            raise fail("must be a mapping", where, entry)
        for key in entry:
            if key not in _BATCH_KEYS:
                raise fail(unknown(str(key), list(_BATCH_KEYS)), f"{where}.{key}")
        process = entry.get("process")
        if not isinstance(process, list):
            raise fail("missing or not a list of [request index, tokens]", f"{where}.process")
        pairs: list[tuple[int, int]] = []
        for pair in process:
            if not (isinstance(pair, list) and len(pair) == 2 and all(_is_integer(v) for v in pair)):
                raise fail("must be [request index, tokens]", f"{where}.process", pair)
            _check_index(pair[0], instance, source, f"{where}.process")
            pairs.append((pair[0], pair[1]))
        lists: dict[str, tuple[int, ...]] = {}
        for key in _OPTIONAL_LISTS:
            indices = entry.get(key, [])
            if not isinstance(indices, list):
                raise fail("must be a list of request indices", f"{where}.{key}", indices)
            for index in indices:
                _check_index(index, instance, source, f"{where}.{key}")
            lists[key] = tuple(indices)
        prefixes = entry.get("drop_prefix", [])
        if not (isinstance(prefixes, list) and all(isinstance(name, str) for name in prefixes)):
            raise fail("must be a list of prefix names", f"{where}.drop_prefix", prefixes)
        for key in ("start_ns", "end_ns"):
            if entry.get(key) is not None and not (_is_integer(entry[key]) and 0 <= entry[key] <= 2**62):
                raise fail("must be an integer number of nanoseconds >= 0", f"{where}.{key}", entry[key])
        batches.append(Batch(tuple(pairs), start_ns=entry.get("start_ns"), drop_prefix=tuple(prefixes), **lists))
        times.append((entry.get("start_ns"), entry.get("end_ns")))
    return Schedule(tuple(batches)), times


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_index(index: object, instance: Instance, source: str, field: str) -> None:
    if not (_is_integer(index) and 0 <= index < len(instance.requests)):  # type: ignore[operator]
        raise InputError(f"must be a request index from 0 to {len(instance.requests) - 1}", source=source, field=field,
                         value=index)  # fmt: skip
