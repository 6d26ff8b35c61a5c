"""Schedulers, one file each, and the names they go by on the command line.

A name is a file's name with optional suffixes: ``vllm``, ``vllm_pf`` (preemption-free: reserves I + O - 1 at
admission), ``vllm_srf`` (another victim rule). A file defines ``SCHEDULER``, a class that `sim.engine.Scheduler`
describes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from sim.errors import InputError
from sim.instance import Instance
from sim.preemption import VictimRule, load_victim_rule
from sim.registry import load, names, unknown

if TYPE_CHECKING:
    from sim.engine import Scheduler


@dataclass(frozen=True, slots=True)
class Options:
    """What a scheduler's name says beyond its file.

    Parameters
    ----------
    victim
        Name of the victim rule.
    preemption_free
        Reserve each request's peak at admission, so that nothing is ever preempted.
    """

    victim: str = "nrf"
    preemption_free: bool = False

    def victim_rule(self) -> VictimRule:
        """The victim rule's function."""
        return load_victim_rule(self.victim)


def parse_name(name: str) -> tuple[str, Options]:
    """Split a scheduler name into its file and its options.

    >>> parse_name("vllm_srf")
    ('vllm', Options(victim='srf', preemption_free=False))
    """
    plain = name.replace("-", "_").replace(".", "_")
    known = names("sim.schedulers")
    base = max((b for b in known if plain == b or plain.startswith(b + "_")), key=len, default=None)
    if base is None:
        raise InputError(unknown(name, known), field="scheduler")
    victim, preemption_free = "nrf", False
    suffix = plain[len(base) + 1 :]
    victims = names("sim.preemption")
    if suffix == "pf":
        preemption_free = True
    elif suffix in victims:
        victim = suffix
    elif suffix:
        options = [f"{base}_{v}" for v in ("pf", *victims)]
        raise InputError(unknown(name, options), field="scheduler")
    return base, Options(victim, preemption_free)


def make_scheduler(name: str, instance: Instance) -> Scheduler:
    """A fresh scheduler by name, for one run on one instance.

    Raises
    ------
    InputError
        If the name is not known.
    """
    base, options = parse_name(name)
    return cast("Scheduler", load("sim.schedulers", base).SCHEDULER(instance, options))
