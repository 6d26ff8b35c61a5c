"""Drawn workloads: lengths from seeded distributions, arrivals from Poisson or Gamma processes.

A distribution is written ``kind:parameters``, as on the command line: ``const:128``, ``uniform:1:128``,
``normal:200:50``, ``lognormal:200:300`` and ``gamma:200:300`` (mean and standard deviation of the tokens),
``exponential:200`` (mean), ``pareto:50:1.5`` (least value and shape). Arrivals: ``offline``, ``constant:RATE``,
``poisson:RATE`` or ``gamma:RATE:CV`` with the rate in requests per second and the coefficient of variation of the gaps
(1 is Poisson, above it bursty).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sim.clock import NS_PER_S
from sim.errors import InputError
from sim.instance import DEFAULT_COST_MODEL, MAX_REQUESTS, MAX_TOKENS, Instance, Request
from sim.registry import unknown

Generator = np.random.Generator
Floats = npt.NDArray[np.float64]


def _lognormal(rng: Generator, n: int, mean: float, deviation: float) -> Floats:
    variance = math.log1p((deviation / mean) ** 2)
    return rng.lognormal(math.log(mean) - variance / 2, math.sqrt(variance), n)


def _gamma(rng: Generator, n: int, mean: float, deviation: float) -> Floats:
    return rng.gamma((mean / deviation) ** 2, deviation**2 / mean, n)


_LENGTHS: dict[str, tuple[tuple[str, ...], Callable[..., Floats]]] = {
    "const": (("value",), lambda rng, n, value: np.full(n, value)),
    "uniform": (("least", "most"), lambda rng, n, low, high: rng.integers(round(low), round(high) + 1, n) * 1.0),
    "normal": (("mean", "deviation"), lambda rng, n, mean, deviation: rng.normal(mean, deviation, n)),
    "lognormal": (("mean", "deviation"), _lognormal),
    "gamma": (("mean", "deviation"), _gamma),
    "exponential": (("mean",), lambda rng, n, mean: rng.exponential(mean, n)),
    "pareto": (("least", "shape"), lambda rng, n, least, shape: least * (1 + rng.pareto(shape, n))),
}


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of token counts, rounded and at least 1.

    Parameters
    ----------
    kind
        One of the module's distributions.
    parameters
        Its parameters, all > 0.
    most
        Larger draws become this.

    Examples
    --------
    >>> parse_lengths("uniform:2:4", "--input").draw(5, np.random.default_rng(0)).tolist()
    [4, 3, 3, 2, 2]
    """

    kind: str
    parameters: tuple[float, ...]
    most: int = MAX_TOKENS

    def draw(self, n: int, rng: Generator) -> npt.NDArray[np.int64]:
        """n token counts."""
        values = _LENGTHS[self.kind][1](rng, n, *self.parameters)
        return np.clip(np.rint(values), 1, self.most).astype(np.int64)


_LEAST, _MOST = 1e-9, 1e10
"""Range of every parameter; beyond it the draws would leave what floats can hold."""

_GAPS: dict[str, tuple[tuple[str, ...], Callable[..., Floats]]] = {
    "offline": ((), lambda rng, n: np.zeros(n)),
    "constant": (("rate",), lambda rng, n, rate: np.full(n, 1 / rate)),
    "poisson": (("rate",), lambda rng, n, rate: rng.exponential(1 / rate, n)),
    "gamma": (("rate", "cv"), lambda rng, n, rate, cv: rng.gamma(cv**-2, cv**2 / rate, n)),
}


@dataclass(frozen=True, slots=True)
class Arrivals:
    """An arrival process; the first request arrives after the first gap, as in steady operation.

    Examples
    --------
    >>> parse_arrivals("constant:4", "--arrivals").draw_ns(3, np.random.default_rng(0))
    [250000000, 500000000, 750000000]
    """

    kind: str
    parameters: tuple[float, ...]

    def draw_ns(self, n: int, rng: Generator) -> list[int]:
        """n arrivals in nanoseconds, ascending."""
        gaps_s = _GAPS[self.kind][1](rng, n, *self.parameters)
        arrivals = np.rint(np.cumsum(gaps_s) * NS_PER_S)
        if n and arrivals[-1] > 2**62:
            raise InputError("arrivals are later than 146 years", field="arrivals", value=self.kind)
        return [int(t) for t in arrivals]


def parse_lengths(text: str, field: str) -> Lengths:
    """A distribution from its text form; plain ``N`` is ``const:N``.

    Raises
    ------
    InputError
        Naming the parameters it wants.
    """
    kind, parameters = _parse(f"const:{text}" if text.isdecimal() else text, _LENGTHS, field)
    if kind == "uniform" and parameters[0] > parameters[1]:
        raise InputError("uniform needs LEAST <= MOST", field=field, value=text)
    if kind in ("const", "uniform") and any(p != int(p) or p > MAX_TOKENS for p in parameters):
        raise InputError(f"{kind} needs integers from 1 to {MAX_TOKENS:,}", field=field, value=text)
    return Lengths(kind, parameters)


def parse_arrivals(text: str, field: str) -> Arrivals:
    """An arrival process from its text form.

    Raises
    ------
    InputError
        Naming the parameters it wants.
    """
    return Arrivals(*_parse(text, _GAPS, field))


def _parse(
    text: str, kinds: dict[str, tuple[tuple[str, ...], Callable[..., Floats]]], field: str
) -> tuple[str, tuple[float, ...]]:
    kind, *rest = text.split(":")
    if kind not in kinds:
        raise InputError(unknown(kind, list(kinds)), field=field)
    names = kinds[kind][0]
    try:
        parameters = tuple(float(part) for part in rest)
        if len(parameters) != len(names) or not all(_LEAST <= p <= _MOST for p in parameters):
            raise ValueError
    except ValueError:
        form = ":".join([kind, *(n.upper() for n in names)])
        raise InputError(f"must be {form} with numbers from {_LEAST:g} to {_MOST:g}", field=field, value=text) from None
    return kind, parameters


def generate(
    n: int,
    inputs: Lengths,
    outputs: Lengths,
    arrivals: Arrivals,
    rng: Generator,
    *,
    kv_capacity_tokens: int,
    token_budget: int = 4096,
    cost_model: str = DEFAULT_COST_MODEL,
    name: str = "generated",
) -> Instance:
    """Draw an instance.

    Parameters
    ----------
    n
        Requests, from 1 to 1,000,000.
    rng
        The only source of randomness: the same state gives the same instance.

    Examples
    --------
    >>> fixed = parse_lengths("128", "")
    >>> drawn = generate(4, fixed, fixed, parse_arrivals("offline", ""), np.random.default_rng(0),
    ...                  kv_capacity_tokens=1000)
    >>> len(drawn.requests), drawn.offline
    (4, True)
    """
    if not 1 <= n <= MAX_REQUESTS:
        raise InputError(f"must be from 1 to {MAX_REQUESTS:,}", field="requests", value=n)
    input_tokens, output_tokens = inputs.draw(n, rng), outputs.draw(n, rng)
    times_ns = arrivals.draw_ns(n, rng)
    requests = tuple(
        Request(int(i), int(o), t) for i, o, t in zip(input_tokens, output_tokens, times_ns, strict=True)
    )  # fmt: skip
    return Instance(requests, kv_capacity_tokens, token_budget, cost_model=cost_model, name=name)
