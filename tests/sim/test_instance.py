"""Requests and instances: the format, its checks and its round trips."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.errors import InputError
from sim.files import parse_text
from sim.instance import (
    DEFAULT_COST_MODEL,
    Instance,
    Request,
    instance_from_dict,
    load_instance,
    parse_seconds,
    shipped_instances,
)
from sim.replay import replay
from tests.oracle import optimum

exact = settings(deadline=None, derandomize=True, max_examples=150)

GOOD: dict[str, Any] = {
    "kv_capacity_tokens": 64,
    "token_budget": 8,
    "requests": [{"input_tokens": 3, "output_tokens": 2}],
}

tokens = st.integers(1, 2**31 - 1)
unnamed = st.builds(
    Request, tokens, tokens, arrival_ns=st.integers(0, 2**52), priority=st.integers(-5, 5), id=st.none()
)
named = st.lists(st.builds(Request, tokens, tokens), min_size=1, max_size=5).map(
    lambda requests: [replace(r, id=f"r-{i}") for i, r in enumerate(requests)]
)
instances = st.builds(
    Instance,
    requests=st.one_of(st.lists(unnamed, min_size=1, max_size=6), named).map(tuple),
    kv_capacity_tokens=tokens, token_budget=tokens, max_num_seqs=st.none() | tokens, block_size=tokens,
    cost_model=st.just(DEFAULT_COST_MODEL), objective=st.sampled_from(["makespan", "mean-ttft"]),
    name=st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8),
)  # fmt: skip


@exact
@given(instances)
def test_dict_round_trip(instance: Instance) -> None:
    assert instance_from_dict(instance.to_dict()) == instance


@exact
@given(instances, st.sampled_from(["json", "yaml"]))
def test_file_round_trip(instance: Instance, kind: str) -> None:
    import tempfile

    data = instance.to_dict()
    text = json.dumps(data) if kind == "json" else yaml.safe_dump(data, allow_unicode=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a.{kind}"
        path.write_text(text, "utf-8")
        assert load_instance(path) == instance


@exact
@given(st.integers(0, 2**52))
def test_arrivals_keep_their_nanosecond(nanoseconds: int) -> None:
    """Written as seconds and read again, any arrival is the same."""
    instance = Instance((Request(1, 1, nanoseconds),), 4)
    again = instance_from_dict(json.loads(json.dumps(instance.to_dict())))
    assert again.requests[0].arrival_ns == nanoseconds


@pytest.mark.parametrize(
    ("seconds", "nanoseconds"), [(0, 0), (0.0, 0), (1, 10**9), (0.1, 10**8), (1e-9, 1), (2.5e-9, 2)]
)
def test_seconds(seconds: float, nanoseconds: int) -> None:
    assert parse_seconds("arrival_s", seconds) == nanoseconds


def test_counts_are_expanded_in_order() -> None:
    entries = [{"count": 2, "input_tokens": 3, "output_tokens": 2}, {"input_tokens": 5, "output_tokens": 1}]
    instance = instance_from_dict(GOOD | {"requests": entries})
    assert [r.input_tokens for r in instance.requests] == [3, 3, 5]
    assert instance.ids == ("0", "1", "2")


def test_counted_ids_are_numbered() -> None:
    entries = [{"count": 2, "input_tokens": 3, "output_tokens": 2, "id": "a"}]
    assert instance_from_dict(GOOD | {"requests": entries}).ids == ("a-0", "a-1")


def test_defaults() -> None:
    instance = instance_from_dict(GOOD)
    assert (instance.block_size, instance.max_num_seqs, instance.objective) == (1, None, "makespan")
    assert instance.cost_model == "linear/llama2-7b-a100"
    assert instance.offline and instance.infeasible() == ()


def test_the_file_name_is_the_name_unless_given(tmp_path: Path) -> None:
    for name, expected in ((None, "small"), ("mine", "mine")):
        path = tmp_path / "small.json"
        path.write_text(json.dumps(GOOD if name is None else GOOD | {"name": name}))
        assert load_instance(path).name == expected


def test_a_cost_model_beside_the_instance_is_found(tmp_path: Path) -> None:
    cost = {"kind": "linear", "layers": 1, "groups": [{"name": "g", "pieces": [{"batch": 1}]}]}
    (tmp_path / "own.json").write_text(json.dumps(cost))
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(GOOD | {"cost_model": "own.json"}))
    instance = load_instance(tmp_path / "a.yaml")
    best = optimum(instance)
    assert best is not None
    assert replay(instance, best.schedule).makespan_ms == 2.0


@pytest.mark.parametrize("name", shipped_instances())
def test_shipped_instances_load(name: str) -> None:
    instance = load_instance(name)
    assert instance.name == name
    assert instance.infeasible() == ()


def test_blocks() -> None:
    instance = Instance((Request(4, 2), Request(1, 1)), 11, block_size=4)
    assert instance.kv_blocks == 2
    assert [instance.blocks(kv) for kv in (0, 1, 4, 5)] == [0, 1, 1, 2]
    assert instance.infeasible() == ()
    assert instance.replace(kv_capacity_tokens=7).infeasible() == (0,)


def test_infeasible_requests_are_named() -> None:
    instance = Instance((Request(4, 2), Request(9, 3, id="big")), 10)
    assert instance.infeasible() == (1,)
    with pytest.raises(InputError, match=r"request big.*I=9 O=3.*11 KV tokens.*kv_capacity_tokens = 10"):
        instance.require_feasible()


BAD = {
    "kv_capacity_tokens": [0, -1, 1.5, "64", True, None, 2**31, [64]],
    "token_budget": [0, -1, 2.0, "8", False, None],
    "max_num_seqs": [0, -3, 1.0, "2", True],
    "block_size": [0, -1, 0.5, "16", None],
    "name": [3, "", None, ["a"]],
    "cost_model": [3, "", None],
    "objective": [3, "", None],
    "schema_version": [2, "1", None],
    "requests": [None, [], {}, 3, "a", [3], [None], [[]], [{}]],
}


@pytest.mark.parametrize(("field", "value"), [(f, v) for f, values in BAD.items() for v in values])
def test_bad_fields_are_named(field: str, value: object) -> None:
    with pytest.raises(InputError) as caught:
        instance_from_dict(GOOD | {field: value}, "x.yaml")
    text = str(caught.value)
    assert text.startswith("x.yaml: ") and field in text and "\n" not in text
    assert caught.value.rule


BAD_REQUEST = {
    "input_tokens": [0, -1, 1.5, "3", True, None, 2**31],
    "output_tokens": [0, -2, 1e9, "2", None],
    "count": [0, -1, 1.0, "2", True, 1_000_001, 10**15],
    "arrival_s": [-1, -1e-9, "0", True, None, float("nan"), float("inf"), 1e300],
    "priority": [0.5, "1", None, True],
    "id": ["", 1.5, True, [], {}],
}


@pytest.mark.parametrize(("field", "value"), [(f, v) for f, values in BAD_REQUEST.items() for v in values])
def test_bad_request_fields_are_named(field: str, value: object) -> None:
    entry = {"input_tokens": 3, "output_tokens": 2} | {field: value}
    with pytest.raises(InputError) as caught:
        instance_from_dict(GOOD | {"requests": [{"input_tokens": 1, "output_tokens": 1}, entry]}, "x.yaml")
    assert f"requests[1].{field}" in str(caught.value)


@pytest.mark.parametrize("missing", GOOD)
def test_missing_keys(missing: str) -> None:
    with pytest.raises(InputError, match=f"x.yaml: {missing}.*missing"):
        instance_from_dict({k: v for k, v in GOOD.items() if k != missing}, "x.yaml")


@pytest.mark.parametrize(
    "key", ["kv_capacity", "token_budgets", "max_num_seq", "blocksize", "cost", "request", "names"]
)
def test_unknown_keys_have_the_nearest_known_one(key: str) -> None:
    with pytest.raises(InputError, match="did you mean"):
        instance_from_dict(GOOD | {key: 1}, "x.yaml")


@pytest.mark.parametrize("key", [1, None, True, 2.5])
def test_keys_that_are_no_text(key: object) -> None:
    with pytest.raises(InputError, match="unknown key"):
        instance_from_dict(GOOD | {key: 1}, "x.yaml")


@pytest.mark.parametrize("entries", [
    [{"input_tokens": 1, "output_tokens": 1, "id": "a"}] * 2,
    [{"input_tokens": 1, "output_tokens": 1, "id": "1"}, {"input_tokens": 1, "output_tokens": 1}],
    [{"input_tokens": 1, "output_tokens": 1, "id": "a", "count": 2},
     {"input_tokens": 1, "output_tokens": 1, "id": "a-1"}],
])  # fmt: skip
def test_ids_are_unique(entries: list[dict[str, Any]]) -> None:
    with pytest.raises(InputError, match="used twice"):
        instance_from_dict(GOOD | {"requests": entries}, "x.yaml")


@pytest.mark.parametrize("requests", [(), (Request(1, 1),) * 3])
def test_python_construction_is_checked_too(requests: tuple[Request, ...]) -> None:
    with pytest.raises(InputError):
        Instance(requests, 0)
    with pytest.raises(InputError, match="input_tokens"):
        Request(0, 1)
    with pytest.raises(InputError, match="arrival_ns"):
        Request(1, 1, -1)


def test_named_duplicates_are_refused_in_python_too() -> None:
    with pytest.raises(InputError, match="used twice"):
        Instance((Request(1, 1, id="a"), Request(2, 1, id="a")), 4)


def test_prefixes_and_prefilled_requests_round_trip() -> None:
    requests = (
        *[Request(8, 2, prefix="system", prefix_tokens=5)] * 2,
        Request(9, 3, prefix="system", prefix_tokens=5),
        Request(4, 2, prefilled=True),
    )
    instance = Instance(requests, 64)
    assert instance_from_dict(json.loads(json.dumps(instance.to_dict()))) == instance


def test_json_is_told_by_its_text_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """YAML readers take minutes for what JSON ones read in a second."""
    assert parse_text("{a: 1}", "a.out") == {"a": 1}
    monkeypatch.setattr("yaml.load", None)
    assert parse_text(' {"a": [1, 2]}\n', "a.out") == {"a": [1, 2]}
    with pytest.raises(InputError, match="twice"):
        parse_text('{"a": 1, "a": 2}', "a.out")
