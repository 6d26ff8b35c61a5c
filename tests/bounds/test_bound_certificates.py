"""Certificates of `bound`: confirmed by `certify` as they are, refused once tampered with, never proving too much."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bounds.certify import certify
from bounds.cli import main
from bounds.lower import iter_bounds
from csp.relaxations.certificate import recheck
from sim.instance import Instance, Request, load_instance
from sim.replay import Rules, SwapLink
from tests.bounds.test_lower_validity import cases

Inputs = dict[str, Any]
PROGRAMS = ("configuration", "levels", "circulation", "histories")


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """What `bound --json` writes where every program applies (packing: 8 batches, configuration LP: 9); its file."""
    folder = tmp_path_factory.mktemp("bound")
    instance, written = folder / "instance.json", folder / "bound.json"
    workload = Instance((Request(7, 2),) * 7 + (Request(7, 4),) * 2, 22, 4096, cost_model="linear/llama2-7b-a100")
    instance.write_text(json.dumps(workload.to_dict()))
    with pytest.MonkeyPatch.context() as patch:
        # As for workloads too large for the exact solver, whose bound no certificate confirms.
        patch.setattr("bounds.interval.MOST_REQUESTS", 0)
        assert main(["bound", str(instance), "--time-limit", "20", "--quiet", "--json", str(written)]) == 0
    return json.loads(written.read_text()), str(instance)


def test_bound_output_is_confirmed(result: tuple[dict[str, Any], str], tmp_path: Path) -> None:
    data, instance = result
    assert {entry["name"] for entry in data["bounds"]} >= set(PROGRAMS)
    findings = {f.claim: f.verdict for f in certify(data, load_instance(instance)).findings}
    assert findings["lower bound"] == "confirmed"
    assert all(findings[f"bound {name}"] == "confirmed" for name in PROGRAMS)
    file = tmp_path / "bound.json"
    file.write_text(json.dumps(data))
    assert main(["certify", str(file), instance, "--quiet"]) == 0


def first_potential(inputs: Inputs) -> None:
    """Potentials of absent requests, which the bound sums up, raised by a tenth."""
    certificate = inputs["certificate"]
    absent = certificate["absent"] if "absent" in certificate else certificate["potentials"]["absent"][0]
    absent[0] = absent[0] * 11 // 10


def levels_dropped(inputs: Inputs) -> None:
    certificate = inputs["certificate"]
    (certificate["sets"] if "sets" in certificate else certificate["potentials"]["level"][0]).pop()


def everything_flat(inputs: Inputs) -> None:
    """All sets, or levels, worth the same: what occupies memory is forgotten."""
    certificate = inputs["certificate"]
    if "sets" in certificate:
        certificate["sets"] = [0] * len(certificate["sets"])
    else:
        certificate["potentials"]["level"] = [[0] * len(row) for row in certificate["potentials"]["level"]]


def longer_requests(inputs: Inputs) -> None:
    certificate = inputs["certificate"]
    certificate["lengths"] = [[i, o + 1, n] for i, o, n in certificate["lengths"]]


def more_requests(inputs: Inputs) -> None:
    certificate = inputs["certificate"]
    certificate["lengths"] = [[i, o, n + 1] for i, o, n in certificate["lengths"]]


def no_convex_combination(inputs: Inputs) -> None:
    inputs["certificate"]["piece_weights"][0] = ["11/10"]


def dearer_memory(inputs: Inputs) -> None:
    """Every price of memory raised: batches no longer pay for it."""
    certificate = inputs["certificate"]
    certificate["prices"] = [[price * 3 // 2 for price in row] for row in certificate["prices"]]


def free_memory(inputs: Inputs) -> None:
    inputs["certificate"]["prices"] = [[0 for _ in row] for row in inputs["certificate"]["prices"]]


def history_forgotten(inputs: Inputs) -> None:
    inputs["certificate"]["history"][1] = 1


def heavier_weights(inputs: Inputs) -> None:
    """One size counts a hundredfold, so that hardly anything else fits beside it."""
    weights = inputs["certificate"]["weights"]
    weights[0][1] *= 100


def weight_of_no_token(inputs: Inputs) -> None:
    inputs["certificate"]["weights"].append([11, 10**9])


def wrong_kind(inputs: Inputs) -> None:
    inputs["certificate"] = {"kind": "oracle"}


POTENTIALS = [first_potential, levels_dropped, everything_flat, longer_requests, more_requests, no_convex_combination,
              wrong_kind]  # fmt: skip
TAMPERED = [(name, change) for name in ("levels", "circulation") for change in POTENTIALS]
TAMPERED += [("histories", change) for change in (dearer_memory, free_memory, history_forgotten, longer_requests,
                                                  more_requests, no_convex_combination, wrong_kind)]  # fmt: skip
TAMPERED += [("configuration", change) for change in (heavier_weights, weight_of_no_token, wrong_kind)]


@pytest.mark.parametrize(("name", "change"), TAMPERED, ids=lambda x: getattr(x, "__name__", x))
def test_tampered_certificates_are_refused(
    result: tuple[dict[str, Any], str], name: str, change: Callable[[Inputs], None]
) -> None:
    data, file = copy.deepcopy(result[0]), result[1]
    instance = load_instance(file)
    data["bounds"] = [entry for entry in data["bounds"] if entry["name"] == name]
    change(data["bounds"][0]["inputs"])
    findings = {f.claim: f.verdict for f in certify(data, instance, time_limit_s=0.01).findings}
    assert findings[f"bound {name}"] == "refuted"


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_beyond_the_certificate_are_refused(result: tuple[dict[str, Any], str], name: str) -> None:
    data = copy.deepcopy(result[0])
    data["bounds"] = [entry for entry in data["bounds"] if entry["name"] == name]
    data["bounds"][0]["value_ms"] *= 1 + 1e-9
    findings = {f.claim: f.verdict for f in certify(data, load_instance(result[1]), time_limit_s=0.01).findings}
    assert findings[f"bound {name}"] == "refuted"


def noise(value: Any, rng: random.Random) -> Any:
    """The same structure with some whole numbers changed."""
    if isinstance(value, list):
        return [noise(x, rng) for x in value]
    if isinstance(value, bool) or not isinstance(value, int) or rng.random() < 0.6:
        return value
    return rng.choice([0, value // 2, value + rng.randrange(1, 10**11), value * 2, -value, value * 1001 // 1000])


@pytest.mark.parametrize("name", PROGRAMS)
def test_changed_numbers_never_prove_more_than_the_optimum(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the numbers in a certificate are: what they prove holds."""
    monkeypatch.setattr("bounds.lower.circulation.MOST_ARCS", 2_000)
    rng = random.Random(6)
    proved = 0
    for case in cases()[5::60]:
        for found in iter_bounds(case.instance, case.cost, only=[name], time_limit_s=2):
            for _ in range(6):
                inputs = json.loads(json.dumps(found.inputs))
                certificate = inputs["certificate"]
                for key in ("sets", "absent", "prices", "potential"):
                    if key in certificate:
                        certificate[key] = noise(certificate[key], rng)
                if "weights" in certificate:
                    certificate["weights"] = [[s, abs(noise(u, rng))] for s, u in certificate["weights"]]
                for key in certificate.get("potentials", {}):
                    certificate["potentials"][key] = noise(certificate["potentials"][key], rng)
                value = recheck(name, inputs, case.instance, case.cost)
                assert value is not None and value <= case.optimum["makespan"]
                proved += value > 0
    assert proved > 60


def test_bounds_that_forbid_swapping_confirm_nothing_under_it() -> None:
    """The potentials are of schedules in which residents come from fills alone."""
    instance = load_instance("paper-7.2-i0032")
    found = next(iter_bounds(instance, cases()[0].cost, only=["circulation"]), None)
    assert found is not None
    data = {"status": "UNKNOWN", "objective": "makespan", "bounds": [found.to_dict()], "schedule": None,
            "objective_ms": None, "lower_bound_ms": found.value_ms, "lower_bound_source": "circulation"}  # fmt: skip
    verdict = certify(data, instance, cost=cases()[0].cost, time_limit_s=1).verdict()
    under_swap = certify(
        data, instance, cost=cases()[0].cost, time_limit_s=1, rules=Rules(swap=SwapLink(0, 0))
    ).verdict()
    assert verdict == "confirmed"
    assert under_swap != "confirmed"
