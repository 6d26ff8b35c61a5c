"""Conformance: repeat reference runs of real schedulers and compare.

Two formats of runs are known, one JSON record per line, plain or gzipped (docs/conformance.md):

- *engine*: runs of vLLM's scheduler classes, every scheduling call with its queues (`sim.conformance.engine`);
- *simulator*: runs of Kim et al.'s simulator, totals and, in part, every batch (`sim.conformance.simulator`).
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from sim.errors import InputError
from sim.replay import RuleError


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a run first differs from its reference.

    Parameters
    ----------
    where
        The step or batch, or "totals".
    what
        What differs ("scheduled").
    expected, got
        Both sides: the reference's and ours.
    """

    where: str
    what: str
    expected: object
    got: object

    def __str__(self) -> str:
        return f"{self.where}: {self.what}: reference {self.expected}, here {self.got}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one record.

    Parameters
    ----------
    name
        Of the record.
    scheduler
        The scheduler it was run with.
    difference
        The first one; None if the record matches.
    skipped
        Why it was not compared; None if it was.
    note
        Something to tell although the record matches, for example that the engine stalls.
    """

    name: str
    scheduler: str
    difference: Difference | None = None
    skipped: str | None = None
    note: str | None = None

    @property
    def matched(self) -> bool:
        """Whether the record was compared and equal."""
        return self.difference is None and self.skipped is None


@dataclass(frozen=True, slots=True)
class Record:
    """One reference run.

    Parameters
    ----------
    data
        As read.
    source
        File and line, for messages.
    form
        "engine" or "simulator".
    """

    data: Mapping[str, Any]
    source: str
    form: str

    @property
    def name(self) -> str:
        """What to call it in tables and tests."""
        return str(_form(self.form)["record_name"](self))


def read_records(path: str | Path) -> Iterator[Record]:
    """Reference runs of a file, one after the other.

    Raises
    ------
    InputError
        If the file cannot be read, or a line is neither format.
    """
    found = False
    try:
        with open(path, "rb") as head:
            zipped = head.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rt", encoding="utf-8") if zipped else open(path, encoding="utf-8") as stream:
            for number, line in enumerate(stream, start=1):
                if line.strip():
                    found = True
                    yield _record(line, f"{path}:{number}")
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot be read: {getattr(error, 'strerror', None) or error}", source=str(path)) from None
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", source=str(path)) from None
    if not found:
        raise InputError("holds no records", source=str(path))


def _record(line: str, source: str) -> Record:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON: {error}", source=source) from None
    if isinstance(data, Mapping):
        if isinstance(data.get("config"), Mapping) and "steps" in data:
            return Record(data, source, "engine")
        if isinstance(data.get("config"), str) and "n_batches" in data:
            return Record(data, source, "simulator")
    raise InputError(
        "is neither an engine run (config mapping, requests, steps) nor a simulator run (config name, n_batches)",
        source=source,
    )


def _form(form: str) -> dict[str, Callable[..., Any]]:
    return vars(import_module(f"sim.conformance.{form}"))


def check(record: Record, scheduler: str | None = None) -> Outcome:
    """Run a record's case and compare.

    Parameters
    ----------
    scheduler
        Use this one instead of the one the record names.

    Raises
    ------
    InputError
        If the record is broken.
    """
    try:
        outcome = _form(record.form)["check"](record, scheduler)
    except RuleError as error:
        broken = Difference(f"batch {error.batch}", "rule of schedules", "kept", f"broken: {error}")
        return Outcome(record.name, scheduler or "?", broken)
    except KeyError as error:
        raise InputError(f"record lacks {error}", source=record.source) from None
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        if isinstance(error, InputError):
            raise InputError(error.rule, source=record.source, field=error.field, value=error.value) from None
        raise InputError(f"record is broken: {error}", source=record.source) from None
    assert isinstance(outcome, Outcome)
    return outcome
