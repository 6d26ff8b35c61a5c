"""Optima of random small instances by the independent search, written to tests/data/small_optima.jsonl.gz.

One JSON record per line: the instance, a cost model (a shipped name, or random coefficients), whether batches that
process nothing are allowed, and the optimum of each objective in ticks (a fraction as text). Nothing of csp or bounds
is used. Run: ``python -m tests.benchmarks.make_small_optima [N] [SEED]`` (about a quarter of an hour for 2,400).
"""

from __future__ import annotations

import gzip
import json
import signal
import sys
from pathlib import Path
from types import FrameType

import numpy as np

from sim.cost.model import CostModel, Features, OperatorGroup, load_cost_model
from sim.instance import Instance, Request
from tests.oracle import Limits, Makespan, MeanTtft, Objective, TooLargeError, WeightedCompletion, optimum

NAMES = (
    "linear/llama2-7b-a100", "linear/llama3-70b-4xa100", "max-affine/llama2-7b-a100", "max-affine/llama3-8b-h100",
    "roofline/llama2-7b-a100",
)  # fmt: skip
OBJECTIVES: dict[str, Objective] = {
    "makespan": Makespan(), "mean_completion": WeightedCompletion(mean=True), "mean_ttft": MeanTtft(),
}  # fmt: skip
MOST_CPU_S = 1.0
"""Larger instances are left out."""
TARGET = Path(__file__).parents[1] / "data" / "small_optima.jsonl.gz"


def random_pieces(rng: np.random.Generator) -> list[list[list[int]]]:
    """One to three groups of one to three pieces with coefficients of very different size, many of them 0."""
    groups = []
    for g in range(int(rng.integers(1, 4))):
        pieces = []
        for _ in range(int(rng.integers(1, 4))):
            scale = np.array([1e3, 1e3, 1e3, 100, 100, 50, 5, 2, 10])
            piece = (rng.random(len(Features._fields)) ** 2 * scale).round() * (rng.random(len(Features._fields)) < 0.6)
            pieces.append([int(x) for x in piece])
        if g == 0:
            for piece in pieces:
                piece[0] += 20
        groups.append(pieces)
    return groups


def cost_of(entry: str | list[list[list[int]]]) -> CostModel:
    """The cost model a record names or spells out."""
    if isinstance(entry, str):
        return load_cost_model(entry)
    groups = tuple(OperatorGroup(str(g), tuple(map(tuple, pieces))) for g, pieces in enumerate(entry))
    return CostModel("random", "max-affine", 1, groups)


def random_instance(rng: np.random.Generator) -> Instance:
    """Up to four requests; often alike, sometimes with arrivals, blocks, few slots or a small token budget."""
    n = int(rng.choice([1, 2, 2, 3, 3, 4]))
    most_in, most_out = (6, 3) if n > 2 else (9, 5)
    lengths = [(int(rng.integers(1, most_in + 1)), int(rng.integers(1, most_out + 1))) for _ in range(n)]
    if rng.random() < 0.4:
        lengths = [lengths[0]] * n
    online = rng.random() < 0.25
    arrivals = [int(rng.integers(0, 20)) * 10**6 if online else 0 for _ in range(n)]
    block = int(rng.choice([1, 1, 1, 2, 3]))
    peak = max(-(-(i + o - 1) // block) for i, o in lengths)
    total = sum(-(-(i + o - 1) // block) for i, o in lengths)
    blocks = int(rng.integers(peak, max(peak + 1, total + 1)))
    longest = max(i + o for i, o in lengths)
    budget = int(rng.integers(max(1, longest // 2), 2 * longest)) if rng.random() < 0.4 else 4096
    seqs = int(rng.integers(1, n + 1)) if rng.random() < 0.25 else None
    requests = tuple(Request(i, o, a) for (i, o), a in zip(lengths, arrivals, strict=True))
    return Instance(requests, blocks * block + int(rng.integers(0, block)), budget, seqs, block)


def record(rng: np.random.Generator) -> dict[str, object] | None:
    """One random instance with its optima; None if it is too large for the search."""
    instance = random_instance(rng)
    entry: str | list[list[list[int]]] = str(rng.choice(NAMES)) if rng.random() < 0.7 else random_pieces(rng)
    cost = cost_of(entry)
    if not isinstance(entry, str):
        instance = instance.replace(requests=tuple(
            Request(r.input_tokens, r.output_tokens, min(r.arrival_ns, 1)) for r in instance.requests))  # fmt: skip
    empty = bool(rng.random() < 0.3)
    optima = {}
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_CPU_S)
    try:
        for name, objective in OBJECTIVES.items():
            best = optimum(instance, objective, limits=Limits(allow_empty=empty), cost=cost, most_states=20_000)
            assert best is not None
            optima[name] = str(best.value)
    except (TooLargeError, TimeoutError):
        return None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    data = instance.to_dict()
    del data["schema_version"], data["cost_model"], data["objective"], data["name"]
    return {"instance": data, "cost": entry, "allow_empty": empty, "optimum_ticks": optima}


def _give_up(signum: int, frame: FrameType | None) -> None:
    raise TimeoutError


def main(count: int, seed: int) -> None:
    """Write the records."""
    signal.signal(signal.SIGVTALRM, _give_up)
    rng = np.random.default_rng(seed)
    lines: list[str] = []
    tried = 0
    while len(lines) < count:
        tried += 1
        made = record(rng)
        if made is not None:
            lines.append(json.dumps(made, separators=(",", ":")))
        if tried % 100 == 0:
            print(f"{len(lines)} records of {tried} tried", flush=True)
    with open(TARGET, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as stream:
        stream.write(("\n".join(lines) + "\n").encode())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2400, int(sys.argv[2]) if len(sys.argv) > 2 else 20240611)
