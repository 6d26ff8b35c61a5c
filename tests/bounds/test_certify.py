"""Results are confirmed as they are and refused once tampered with."""

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
from csp.solve import solve
from sim.instance import Instance, load_instance
from tests.csp.test_search import random_instance

Result = dict[str, Any]
Mutation = Callable[[Result, random.Random], Result | None]


def drop_batch(result: Result, rng: random.Random) -> Result | None:
    del result["schedule"]["batches"][rng.randrange(len(result["schedule"]["batches"]))]
    return result


def repeat_batch(result: Result, rng: random.Random) -> Result | None:
    batches = result["schedule"]["batches"]
    place = rng.randrange(len(batches))
    batches.insert(place, copy.deepcopy(batches[place]))
    return result


def swap_batches(result: Result, rng: random.Random) -> Result | None:
    batches = result["schedule"]["batches"]
    if len(batches) < 2:
        return None
    i = rng.randrange(len(batches) - 1)
    if batches[i]["process"] == batches[i + 1]["process"] and batches[i]["preempt"] == batches[i + 1]["preempt"]:
        return None
    batches[i], batches[i + 1] = batches[i + 1], batches[i]
    return result


def other_tokens(result: Result, rng: random.Random) -> Result | None:
    entry = rng.choice(rng.choice(result["schedule"]["batches"])["process"])
    entry[1] += rng.choice([-1, 1])
    return result


def other_request(result: Result, rng: random.Random) -> Result | None:
    entry = rng.choice(rng.choice(result["schedule"]["batches"])["process"])
    entry[0] = entry[0] + 1
    return result


def drop_entry(result: Result, rng: random.Random) -> Result | None:
    process = rng.choice(result["schedule"]["batches"])["process"]
    del process[rng.randrange(len(process))]
    return result


def preempt_someone(result: Result, rng: random.Random) -> Result | None:
    batch = rng.choice(result["schedule"]["batches"])
    batch["preempt"].append(rng.choice(batch["process"])[0])
    return result


def shift_time(result: Result, rng: random.Random) -> Result | None:
    rng.choice(result["schedule"]["batches"])[rng.choice(["start_ns", "end_ns"])] += rng.choice([-1, 1, 1000])
    return result


def better_objective(result: Result, rng: random.Random) -> Result | None:
    for key in ("objective_ms", "objective_value"):
        result[key] *= 1 - 10 ** -rng.randint(1, 9)
    return result


def bound_above_schedule(result: Result, rng: random.Random) -> Result | None:
    for key in ("lower_bound_ms", "lower_bound_value"):
        result[key] = result["objective_ms"] * (1 + 10 ** -rng.randint(1, 9))
    return result


def inflated_listed_bound(result: Result, rng: random.Random) -> Result | None:
    rng.choice(result["bounds"])["value_ms"] *= 1 + 10 ** -rng.randint(1, 6)
    return result


def inflated_bound_of_a_listed_source(result: Result, rng: random.Random) -> Result | None:
    source = rng.choice(result["bounds"])
    if source["value_ms"] >= result["lower_bound_ms"]:
        return None
    result["lower_bound_source"] = source["name"]
    return result


def optimal_without_proof(result: Result, rng: random.Random) -> Result | None:
    for key in ("lower_bound_ms", "lower_bound_value"):
        result[key] = result["objective_ms"] * (1 - 10 ** -rng.randint(2, 6))
    result["gap"], result["status"] = None, "OPTIMAL"
    return result


def bound_of_a_search_that_is_not_exact(result: Result, rng: random.Random) -> Result | None:
    if result["lower_bound_source"] != "search":
        return None
    result["exact"] = False
    return result


def no_schedule(result: Result, rng: random.Random) -> Result | None:
    result["schedule"] = None
    return result


MUTATIONS: list[Mutation] = [
    drop_batch, repeat_batch, swap_batches, other_tokens, other_request, drop_entry, preempt_someone, shift_time,
    better_objective, bound_above_schedule, inflated_listed_bound, inflated_bound_of_a_listed_source,
    optimal_without_proof, bound_of_a_search_that_is_not_exact, no_schedule,
]  # fmt: skip


def solved(instance: Instance) -> Result:
    return json.loads(json.dumps(solve(instance, solver="search", workers=1).to_dict()))  # type: ignore[no-any-return]


def confirmed_and_refused(seed: int, mutations: int) -> tuple[str, int]:
    """Verdict on a random instance's result as it is, and how many of its mutations were tried (all were refused)."""
    rng = random.Random(seed)
    instance = random_instance(rng, 3)
    result = solved(instance)
    verdict = certify(result, instance, time_limit_s=1).verdict()
    tried = 0
    for mutate in rng.sample(MUTATIONS, mutations):
        changed = mutate(copy.deepcopy(result), rng)
        if changed is None:
            continue
        tried += 1
        assert certify(changed, instance, time_limit_s=0.2).verdict() == "refuted", (seed, mutate.__name__)
    return verdict, tried


@pytest.mark.parametrize("block", range(5))
def test_random_results_pass_and_their_mutations_are_refused(block: int) -> None:
    verdicts, tried = [], 0
    for seed in range(20 * block, 20 * block + 20):
        verdict, count = confirmed_and_refused(seed, 3)
        verdicts.append(verdict)
        tried += count
    assert "refuted" not in verdicts
    assert tried > 20


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
def test_every_kind_of_mutation_is_refused(mutate: Mutation) -> None:
    instance = load_instance("paper-7.2-i0016")
    result = solved(instance)
    assert certify(result, instance).verdict() != "refuted"
    rng = random.Random(1)
    drawn = [mutate(copy.deepcopy(result), rng) for _ in range(12)]
    changed = [one for one in drawn if one is not None][:3]
    assert len(changed) == 3
    for one in changed:
        assert certify(one, instance, time_limit_s=0.2).verdict() == "refuted"


def test_where_bounds_meet_the_schedule_nothing_rests_on_the_solver() -> None:
    instance = load_instance("paper-7.2-i0064")
    certificate = certify(solved(instance), instance)
    assert certificate.verdict() == "confirmed"
    assert certificate.confirmed_bound == certificate.objective


def test_a_bound_above_what_a_scheduler_reaches_is_refuted_without_a_schedule() -> None:
    instance = load_instance("paper-7.2-i0032")
    result = solved(instance) | {"status": "UNKNOWN", "schedule": None, "objective_ms": None, "objective_value": None,
                                 "gap": None}  # fmt: skip
    assert certify(result, instance).verdict() != "refuted"
    result |= {"lower_bound_ms": 60.3, "lower_bound_value": 60.3}
    certificate = certify(result, instance)
    assert certificate.verdict() == "refuted"
    assert "makes a schedule of 60.181205 ms" in certificate.findings[-2].detail


def test_what_bounds_do_not_reach_is_left_open() -> None:
    instance = load_instance("uniform-8x16-8-m64")
    certificate = certify(solved(instance), instance)
    assert certificate.verdict() == "open"
    assert certificate.confirmed_bound is not None and certificate.objective is not None
    assert certificate.confirmed_bound < certificate.objective
    assert any("rests on search" in finding.detail for finding in certificate.findings)


def test_another_objective_and_forbidden_preemption() -> None:
    from sim.replay import Rules

    instance = load_instance("paper-7.2-i0001")
    rules = Rules(preemption=False)
    result = json.loads(json.dumps(solve(instance, objective="mean_completion", rules=rules).to_dict()))
    assert certify(result, instance, rules=rules).verdict() == "open"
    preempting = solved(instance)
    assert certify(preempting, instance, rules=rules).verdict() == "refuted"


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "result.json"
    result = solved(load_instance("paper-7.2-i0064"))
    path.write_text(json.dumps(result))
    out = tmp_path / "certificate.json"
    assert main(["certify", str(path), "paper-7.2-i0064", "--json", str(out)]) == 0
    assert "nothing rests on the solver" in capsys.readouterr().out
    assert json.loads(out.read_text())["verdict"] == "confirmed"
    result["objective_ms"] = result["objective_value"] = 69.0
    path.write_text(json.dumps(result))
    assert main(["certify", str(path), "paper-7.2-i0064"]) == 1
    assert "refuted" in capsys.readouterr().out
    path.write_text("[]")
    assert main(["certify", str(path), "paper-7.2-i0064"]) == 2
    path.write_text('{"status": "GREAT", "objective": "makespan", "bounds": []}')
    assert main(["certify", str(path), "paper-7.2-i0064"]) == 2
    assert "must be one of OPTIMAL" in capsys.readouterr().err


def test_a_trace_is_named_as_when_the_result_was_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "result.json")
    workload = ["--trace", "azure-conv-200", "--first", "6", "--kv-capacity", "1000", "--drop-infeasible",
                "--cost-model", "linear/llama3-70b-4xa100"]  # fmt: skip
    assert main(["bound", *workload, "--until-gap", "1", "--json", path, "--quiet"]) == 0
    assert main(["certify", path, *workload, "--time-limit", "0.2"]) == 0
    assert main(["check", path, *workload]) == 0
    capsys.readouterr()
    assert main(["certify", path, *workload, "--kv-capacity", "900", "--time-limit", "0.2"]) == 1
    assert main(["check", path, *workload[:-1], "linear/llama2-7b-a100"]) == 1
    assert "refuted" in capsys.readouterr().out
