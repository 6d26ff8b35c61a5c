"""Schedulers, one file each, and the names they go by on the command line.

A name is a file's name, then suffixes, then parameters: ``vllm``, ``vllm_pf`` (an admission rule: reserve I + O - 1),
``sarathi_cs_srf_hist`` (a victim rule and an admission rule), ``vllm-v1-0.33:watermark=0.05:policy=priority``.
``-``, ``.`` and ``_`` are the same. A file defines ``SCHEDULER``, a class as in `sim.scheduling.Scheduler`, and may
define ``NAME``, its official spelling.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from sim.errors import InputError
from sim.instance import Instance
from sim.preemption import VictimRule, load_victim_rule
from sim.registry import load, names, unknown
from sim.scheduling import Scheduler

T = TypeVar("T")

REFILLS = ("recompute", "swap", "cheapest")
"""How a victim's KVs come back: computed again, from host memory, or whichever is faster for this victim."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a scheduler's name says beyond its file.

    Parameters
    ----------
    victim
        Name of the victim rule (`sim.preemption`).
    admission
        Name of the admission rule (`sim.admission`).
    queue
        Name of the order of the waiting queue (`sim.queues`).
    refill
        One of `REFILLS`.
    parameters
        (key, text) pairs from the name; each scheduler knows its own.
    """

    victim: str = "nrf"
    admission: str = "asis"
    queue: str = "fcfs"
    refill: str = "recompute"
    parameters: tuple[tuple[str, str], ...] = ()

    @property
    def preemption_free(self) -> bool:
        """Whether each request's peak is reserved at admission."""
        return self.admission == "pf"

    def victim_rule(self) -> VictimRule:
        """The victim rule's function."""
        return load_victim_rule(self.victim)

    def read(self, defaults: T) -> T:
        """The parameters as a dataclass: ``defaults`` with what the name sets.

        Raises
        ------
        InputError
            If a key is unknown or its text is no value of the default's type.
        """
        known = {f.name: getattr(defaults, f.name) for f in dataclasses.fields(cast(Any, defaults))}
        changes = {}
        for key, text in self.parameters:
            if key not in known:
                raise InputError(unknown(key, sorted(known)), field="scheduler parameter")
            changes[key] = _value(key, text, known[key])
        return cast(T, dataclasses.replace(cast(Any, defaults), **changes))


def _value(key: str, text: str, default: object) -> object:
    if isinstance(default, bool):
        if text.lower() in ("true", "on", "1", "yes"):
            return True
        if text.lower() in ("false", "off", "0", "no"):
            return False
        raise InputError("must be on or off", field=f"scheduler parameter {key}", value=text)
    if isinstance(default, str):
        return text
    try:
        number = int(text) if isinstance(default, int) else float(text)
        if not 0 <= number < 2**31:
            raise ValueError
    except ValueError:
        kind = "an integer" if isinstance(default, int) else "a number"
        raise InputError(f"must be {kind} >= 0", field=f"scheduler parameter {key}", value=text) from None
    return number


@dataclass(frozen=True, slots=True)
class _Suffixes:
    kind: str
    words: tuple[str, ...] = field(default=())


def _suffixes() -> list[_Suffixes]:
    return [
        _Suffixes("victim", tuple(names("sim.preemption"))),
        _Suffixes("admission", tuple(names("sim.admission"))),
        _Suffixes("queue", tuple(names("sim.queues"))),
        _Suffixes("refill", REFILLS),
    ]


def parse_name(name: str) -> tuple[str, Options]:
    """Split a scheduler name into its file and its options.

    Raises
    ------
    InputError
        If there is no such scheduler, or a suffix is unknown or given twice.

    >>> parse_name("sarathi_cs_srf_hist")[1].admission
    'hist'
    >>> base, options = parse_name("vllm-v1-0.33:watermark=0.05")
    >>> base, options.parameters
    ('vllm_v1_0_33', (('watermark', '0.05'),))
    """
    head, *pairs = name.split(":")
    plain = head.replace("-", "_").replace(".", "_")
    known = names("sim.schedulers")
    base = max((b for b in known if plain == b or plain.startswith(b + "_")), key=len, default=None)
    if base is None or plain.endswith("_"):
        raise InputError(unknown(head, [official_name("sim.schedulers", b) for b in known]), field="scheduler")
    chosen: dict[str, Any] = {}
    rest = plain[len(base) + 1 :]
    while rest:
        fits = [(w, s.kind) for s in _suffixes() for w in s.words if rest == w or rest.startswith(w + "_")]
        word, kind = max(fits, key=lambda fit: len(fit[0]), default=("", ""))
        if not word:
            words = [f"{base}_{w}" for s in _suffixes() for w in s.words]
            raise InputError(unknown(head, words), field="scheduler")
        if kind in chosen:
            raise InputError(f"names two {kind} rules, {chosen[kind]} and {word}", field="scheduler", value=head)
        chosen[kind] = word
        rest = rest[len(word) + 1 :]
    chosen["parameters"] = tuple(_pair(pair, name) for pair in pairs)
    return base, Options(**chosen)


def _pair(text: str, name: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals and value):
        raise InputError("parameters are written NAME:key=value:key=value", field="scheduler", value=name)
    return key.replace("-", "_"), value


def official_name(package: str, module: str) -> str:
    """How a plug-in's name is spelled: its ``NAME``, or its file name."""
    return cast(str, getattr(load(package, module), "NAME", module))


def make_scheduler(name: str, instance: Instance) -> Scheduler:
    """A fresh scheduler by name, for one run on one instance.

    Raises
    ------
    InputError
        If the name is not known.
    """
    base, options = parse_name(name)
    return cast("Scheduler", load("sim.schedulers", base).SCHEDULER(instance, options))
