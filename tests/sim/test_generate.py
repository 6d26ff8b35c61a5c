"""Drawn workloads: their moments, their seeds, and what is refused."""

import numpy as np
import pytest

from sim.errors import InputError
from sim.generate import generate, parse_arrivals, parse_lengths

N = 20_000


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize(
    ("text", "mean", "deviation"),
    [
        ("const:128", 128, 0),
        ("128", 128, 0),
        ("uniform:1:99", 50, (98 * 100 / 12) ** 0.5),
        ("normal:500:50", 500, 50),
        ("lognormal:500:300", 500, 300),
        ("gamma:500:300", 500, 300),
        ("exponential:500", 500, 500),
        ("pareto:100:5", 125, 100 * (5 / (16 * 3)) ** 0.5),
    ],
)
def test_lengths_have_the_moments_they_are_named_by(text: str, mean: float, deviation: float) -> None:
    values = parse_lengths(text, "").draw(N, rng())
    assert values.mean() == pytest.approx(mean, rel=0.03)
    assert values.std() == pytest.approx(deviation, rel=0.06, abs=1e-9)
    assert values.min() >= 1


@pytest.mark.parametrize(
    ("text", "cv"), [("constant:20", 0), ("poisson:20", 1), ("gamma:20:3", 3), ("gamma:20:0.5", 0.5)]
)
def test_gaps_have_the_rate_and_the_variation(text: str, cv: float) -> None:
    gaps = np.diff([0, *parse_arrivals(text, "").draw_ns(N, rng())]) / 1e9
    assert gaps.mean() == pytest.approx(1 / 20, rel=0.08)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.06, abs=1e-6)


def test_the_seed_decides() -> None:
    def draw(seed: int) -> object:
        lengths = parse_lengths("lognormal:100:50", "")
        arrivals = parse_arrivals("gamma:5:2", "")
        return generate(50, lengths, lengths, arrivals, np.random.default_rng(seed), kv_capacity_tokens=1000)

    assert draw(1) == draw(1) != draw(2)


@pytest.mark.parametrize(
    "text", ["weibull:3", "uniform:5", "uniform:9:3", "uniform:1.5:3", "const:0", "const:x", "normal:5:-1",
             "const:1e30", "lognormal:nan:1", "const:"]
)  # fmt: skip
def test_bad_distributions_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError, match="--input-tokens"):
        parse_lengths(text, "--input-tokens")


@pytest.mark.parametrize("text", ["poisson", "poisson:0", "gamma:3", "gamma:3:0", "bursts:3", "offline:3"])
def test_bad_arrivals_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError, match="--arrivals"):
        parse_arrivals(text, "--arrivals")
