"""Broken files and wrong usage: one line on stderr that says where and why, exit code 2, nothing written."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bounds.cli import main

Run = Callable[..., str]

HEAD = "kv_capacity_tokens: 64\ntoken_budget: 8\n"
ENTRY = "  - {input_tokens: 3, output_tokens: 2}\n"
GOOD = HEAD + "requests:\n" + ENTRY
TRACE_HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
TRACE_ROW = "2023-11-16 18:15:46.68,374,44\n"


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command line in an empty folder; it must refuse in one line and leave nothing behind."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str, says: tuple[str, ...] = ()) -> str:
        before = sorted(tmp_path.rglob("*"))
        code = main(list(words))
        captured = capsys.readouterr()
        assert code == 2, captured
        assert captured.out == ""
        assert captured.err.count("\n") == 1 and captured.err.endswith("\n"), captured.err
        assert captured.err.startswith("servebound")
        assert "Traceback" not in captured.err
        assert len(captured.err) < 600, "one line that a reader can take in"
        for text in says:
            assert text in captured.err
        assert sorted(tmp_path.rglob("*")) == before
        return captured.err

    return run


INSTANCES: dict[str, tuple[str, tuple[str, ...]]] = {
    "empty file": ("", ("must be a mapping",)),
    "a list": ("- 1\n- 2\n", ("must be a mapping", "list")),
    "a number": ("42\n", ("must be a mapping",)),
    "text": ("hello world\n", ("must be a mapping",)),
    "not YAML": ("kv_capacity_tokens: [64\n", ("is not YAML", "line")),
    "a tab": ("kv_capacity_tokens: 64\n\ttoken_budget: 8\n", ("is not YAML", "line 2")),
    "a YAML tag": ("!!python/object/apply:os.system ['echo x']\n", ("is not YAML",)),
    "two documents": (GOOD + "---\n" + GOOD, ("is not YAML",)),
    "unknown key": (GOOD + "kv_capacity: 3\n", ("kv_capacity", "did you mean 'kv_capacity_tokens'")),
    "unknown request key": (HEAD + "requests:\n  - {input_token: 3, output_tokens: 2}\n",
                            ("requests[0].input_token", "did you mean 'input_tokens'")),
    "key twice": (GOOD + "token_budget: 9\n", ("token_budget", "twice")),
    "request key twice": (HEAD + "requests:\n  - {input_tokens: 3, input_tokens: 4, output_tokens: 2}\n",
                          ("input_tokens", "twice")),
    "no capacity": ("token_budget: 8\nrequests:\n" + ENTRY, ("kv_capacity_tokens", "missing")),
    "no budget": ("kv_capacity_tokens: 8\nrequests:\n" + ENTRY, ("token_budget", "missing")),
    "no requests": (HEAD, ("requests", "missing")),
    "empty requests": (HEAD + "requests: []\n", ("requests", "at least one")),
    "requests is a mapping": (HEAD + "requests: {input_tokens: 3, output_tokens: 2}\n", ("requests", "list")),
    "request is a number": (HEAD + "requests: [3]\n", ("requests[0] = 3", "mapping")),
    "no input tokens": (HEAD + "requests:\n  - {output_tokens: 2}\n", ("requests[0].input_tokens", "missing")),
    "no output tokens": (HEAD + "requests:\n  - {input_tokens: 2}\n", ("requests[0].output_tokens", "missing")),
    "zero input": (HEAD + "requests:\n  - {input_tokens: 0, output_tokens: 2}\n",
                   ("requests[0].input_tokens = 0", ">= 1")),
    "negative output": (HEAD + "requests:\n" + ENTRY + "  - {input_tokens: 1, output_tokens: -2}\n",
                        ("requests[1].output_tokens = -2", ">= 1")),
    "fractional tokens": (HEAD + "requests:\n  - {input_tokens: 1.5, output_tokens: 2}\n",
                          ("requests[0].input_tokens = 1.5", "integer")),
    "tokens as text": (HEAD + "requests:\n  - {input_tokens: '3', output_tokens: 2}\n",
                       ("requests[0].input_tokens = '3'", "integer")),
    "tokens true": (HEAD + "requests:\n  - {input_tokens: true, output_tokens: 2}\n",
                    ("requests[0].input_tokens = True", "integer")),
    "tokens null": (HEAD + "requests:\n  - {input_tokens: ~, output_tokens: 2}\n",
                    ("requests[0].input_tokens = None", "integer")),
    "enormous tokens": (HEAD + "requests:\n  - {input_tokens: 99999999999, output_tokens: 2}\n",
                        ("requests[0].input_tokens = 99999999999", "<= 2,147,483,647")),
    "zero count": (HEAD + "requests:\n  - {count: 0, input_tokens: 3, output_tokens: 2}\n",
                   ("requests[0].count = 0", ">= 1")),
    "a billion requests": (HEAD + "requests:\n  - {count: 1000000000, input_tokens: 3, output_tokens: 2}\n",
                           ("requests[0].count", "1,000,000")),
    "too many in all": (HEAD + "requests:\n" + "  - {count: 600000, input_tokens: 3, output_tokens: 2}\n" * 2,
                        ("requests[1].count", "1,000,000")),
    "negative arrival": (HEAD + "requests:\n  - {input_tokens: 3, output_tokens: 2, arrival_s: -1}\n",
                         ("requests[0].arrival_s = -1", "seconds")),
    "arrival NaN": (HEAD + "requests:\n  - {input_tokens: 3, output_tokens: 2, arrival_s: .nan}\n",
                    ("requests[0].arrival_s = nan", "finite")),
    "arrival infinite": (HEAD + "requests:\n  - {input_tokens: 3, output_tokens: 2, arrival_s: .inf}\n",
                         ("requests[0].arrival_s = inf", "finite")),
    "arrival as a date": (HEAD + "requests:\n  - {input_tokens: 3, output_tokens: 2, arrival_s: 2023-11-16}\n",
                          ("requests[0].arrival_s", "seconds")),
    "priority as text": (HEAD + "requests:\n  - {input_tokens: 3, output_tokens: 2, priority: high}\n",
                         ("requests[0].priority = 'high'", "integer")),
    "ids twice": (HEAD + "requests:\n" + "  - {input_tokens: 3, output_tokens: 2, id: a}\n" * 2,
                  ("requests.id = 'a'", "twice")),
    "capacity zero": (GOOD.replace("64", "0"), ("kv_capacity_tokens = 0", ">= 1")),
    "budget negative": (GOOD.replace("8", "-8"), ("token_budget = -8", ">= 1")),
    "sequence cap zero": (GOOD + "max_num_seqs: 0\n", ("max_num_seqs = 0", ">= 1")),
    "block size zero": (GOOD + "block_size: 0\n", ("block_size = 0", ">= 1")),
    "block size null": (GOOD + "block_size:\n", ("block_size = None", "integer")),
    "unknown cost model": (GOOD + "cost_model: linear/llama2-7b-a10\n",
                           ("cost_model", "did you mean 'linear/llama2-7b-a100'")),
    "cost model is a number": (GOOD + "cost_model: 3\n", ("cost_model = 3", "string")),
    "schema version": (GOOD + "schema_version: 2\n", ("schema_version = 2", "reads 1")),
    "a prefix without its length": (HEAD + "requests:\n  - {input_tokens: 3, output_tokens: 2, prefix: a}\n",
                                    ("requests[0].prefix_tokens = None", "integer")),
    "a prefix as long as the prompt": (HEAD + "requests:\n  - {input_tokens: 3, output_tokens: 2, prefix: a, "
                                       "prefix_tokens: 3}\n", ("requests[0].prefix_tokens = 3", "<= 2")),
    "a length without a prefix": (HEAD + "requests:\n  - {input_tokens: 3, output_tokens: 2, prefix_tokens: 1}\n",
                                  ("requests[0].prefix_tokens = 1", "name of the prefix")),
    "two lengths of one prefix": (HEAD + "requests:\n  - {input_tokens: 3, output_tokens: 2, prefix: a, "
                                  "prefix_tokens: 1}\n  - {input_tokens: 3, output_tokens: 2, prefix: a, "
                                  "prefix_tokens: 2}\n",
                                  ("requests.prefix_tokens = 2", "same length")),
    "prefilled as text": (HEAD + "requests:\n  - {input_tokens: 3, output_tokens: 2, prefilled: 'yes'}\n",
                          ("requests[0].prefilled = 'yes'", "true or false")),
    "prefilled and done": (HEAD + "requests:\n  - {input_tokens: 3, output_tokens: 1, prefilled: true}\n",
                           ("requests[0].output_tokens = 1", "O >= 2")),
    "a self-reference": ("kv_capacity_tokens: 64\ntoken_budget: 8\nrequests: &r\n  - *r\n", ("is not YAML",)),
}  # fmt: skip


@pytest.mark.parametrize("case", INSTANCES)
def test_broken_instance(case: str, refused: Run) -> None:
    text, says = INSTANCES[case]
    Path("a.yaml").write_text(text, "utf-8")
    refused("simulate", "a.yaml", "--json", "out.json", says=("a.yaml", *says))


JSON_INSTANCES: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "not JSON": (b"{", ("is not JSON", "line 1")),
    "key twice": (b'{"token_budget": 1, "token_budget": 2}', ("token_budget", "twice")),
    "NaN": (b'{"token_budget": NaN}', ("NaN",)),
    "deeply nested": (b"[" * 100_000, ("a.json",)),
    "an enormous number": (b'{"token_budget": ' + b"9" * 5000 + b"}", ("a.json",)),
    "Latin-1": ('{"name": "é"}'.encode("latin-1"), ("UTF-8",)),
    "binary": (bytes(range(256)), ("UTF-8",)),
    "a UTF-8 mark": (b"\xef\xbb\xbf{}", ("a.json",)),
}


@pytest.mark.parametrize("case", JSON_INSTANCES)
def test_broken_json_instance(case: str, refused: Run) -> None:
    text, says = JSON_INSTANCES[case]
    Path("a.json").write_bytes(text)
    refused("simulate", "a.json", says=("a.json", *says))


@pytest.mark.parametrize("case", ["nested", "aliases"])
def test_hostile_yaml(case: str, refused: Run) -> None:
    bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 9)
    )
    Path("a.yaml").write_text("[" * 50_000 if case == "nested" else bomb)
    refused("simulate", "a.yaml", says=("a.yaml",))


def test_no_such_instance(refused: Run) -> None:
    refused("simulate", "missing.yaml", says=("missing.yaml", "no such file"))
    refused("simulate", "paper-7.2-i003", says=("did you mean 'paper-7.2-i0032'",))
    refused("simulate", "../x", says=("../x", "no such file"))
    refused("simulate", "x" * 5000, says=("no such file",))


def test_a_folder_is_no_instance(refused: Run) -> None:
    Path("folder").mkdir()
    refused("simulate", "folder", says=("folder", "is a folder"))


def test_a_request_that_never_fits(refused: Run) -> None:
    Path("a.yaml").write_text(HEAD + "requests:\n" + ENTRY + "  - {input_tokens: 60, output_tokens: 9, id: big}\n")
    says = ("a.yaml", "request big", "I=60 O=9", "68", "kv_capacity_tokens = 64", "--drop-infeasible")
    for command in ("bound", "compare"):
        refused(command, "a.yaml", "--json", "out.json", says=says)


@pytest.mark.parametrize("command", ["simulate", "bound", "compare", "solve"])
def test_prefilled_requests_need_a_link(command: str, refused: Run) -> None:
    Path("a.yaml").write_text(HEAD + "requests:\n  - {input_tokens: 3, output_tokens: 2, prefilled: true}\n")
    refused(command, "a.yaml", "--quiet", says=("requests", "prefilled"))


COST_MODELS: dict[str, tuple[str, tuple[str, ...]]] = {
    "not JSON": ("{", ("is not JSON",)),
    "a list": ("[]", ("must be a mapping",)),
    "no kind": ('{"layers": 1, "groups": []}', ("kind", "missing")),
    "negative coefficient": ('{"kind": "linear", "layers": 1, "groups": [{"name": "g", "pieces": [{"tokens": -1}]}]}',
                             ("groups[0].pieces[0].tokens = ", "from 0")),
    "NaN": ('{"kind": "linear", "layers": 1, "groups": [{"name": "g", "pieces": [{"tokens": NaN}]}]}',
            ("groups[0].pieces[0].tokens",)),
    "unknown feature": ('{"kind": "linear", "layers": 1, "groups": [{"name": "g", "pieces": [{"token": 1}]}]}',
                        ("groups[0].pieces[0].token", "did you mean 'tokens'")),
    "key twice": ('{"kind": "linear", "kind": "roofline", "layers": 1}', ("kind", "twice")),
}  # fmt: skip


@pytest.mark.parametrize("case", COST_MODELS)
def test_broken_cost_model(case: str, refused: Run) -> None:
    text, says = COST_MODELS[case]
    Path("c.json").write_text(text)
    Path("a.yaml").write_text(GOOD + "cost_model: c.json\n")
    refused("simulate", "a.yaml", says=("c.json", *says))
    refused("simulate", "paper-7.2-i0001", "--cost-model", "c.json", says=("c.json", *says))


def schedule(**changes: object) -> str:
    batch = {"start_ns": None, "end_ns": None, "process": [[0, 3]], "preempt": []} | changes
    return json.dumps({"schema_version": 1, "requests": ["0"], "batches": [batch, {"process": [[0, 1]]}]})


SCHEDULES: dict[str, tuple[str, tuple[str, ...]]] = {
    "empty": ("", ("is not JSON",)),
    "not JSON": ("{", ("is not JSON",)),
    "a list": ("[]", ("must be a mapping",)),
    "no batches": ("{}", ("batches", "missing")),
    "batches is a number": ('{"batches": 3}', ("batches", "list")),
    "unknown key": ('{"batches": [], "batch": 1}', ("batch", "did you mean 'batches'")),
    "schema version": ('{"schema_version": 9, "batches": []}', ("schema_version = 9", "reads 1")),
    "other requests": ('{"requests": ["7"], "batches": []}', ("requests = ['7']", "ids in order")),
    "batch is a number": ('{"batches": [3]}', ("batches[0] = 3", "mapping")),
    "unknown batch key": ('{"batches": [{"proces": []}]}', ("batches[0].proces", "did you mean 'process'")),
    "no process": ('{"batches": [{}]}', ("batches[0].process", "missing")),
    "entry of one": (schedule(process=[[0]]), ("batches[0].process = [0]", "[request index, tokens]")),
    "entry of text": (schedule(process=[["0", 3]]), ("batches[0].process", "[request index, tokens]")),
    "tokens fractional": (schedule(process=[[0, 1.5]]), ("batches[0].process = [0, 1.5]",)),
    "tokens true": (schedule(process=[[0, True]]), ("batches[0].process = [0, True]",)),
    "index too large": (schedule(process=[[1, 3]]), ("batches[0].process = 1", "from 0 to 0")),
    "index negative": (schedule(process=[[-1, 3]]), ("batches[0].process = -1", "from 0 to 0")),
    "victim unknown": (schedule(preempt=[5]), ("batches[0].preempt = 5", "from 0 to 0")),
    "victims a number": (schedule(preempt=0), ("batches[0].preempt = 0", "list")),
    "start negative": (schedule(start_ns=-1), ("batches[0].start_ns = -1", ">= 0")),
    "end as text": (schedule(end_ns="soon"), ("batches[0].end_ns = 'soon'", "nanoseconds")),
    "end fractional": (schedule(end_ns=1.5), ("batches[0].end_ns = 1.5", "nanoseconds")),
    "start enormous": (schedule(start_ns=10**30), ("batches[0].start_ns",)),
    "result without a schedule": ('{"status": "UNKNOWN", "schedule": null}', ("schedule",)),
}


@pytest.mark.parametrize("case", SCHEDULES)
def test_broken_schedule(case: str, refused: Run) -> None:
    text, says = SCHEDULES[case]
    Path("s.json").write_text(text)
    Path("a.yaml").write_text(GOOD)
    refused("check", "s.json", "a.yaml", "--json", "out.json", says=("s.json", *says))


TRACES: dict[str, tuple[str, tuple[str, ...]]] = {
    "empty": ("", ("empty",)),
    "header only": (TRACE_HEAD, ("no requests",)),
    "missing column": ("TIMESTAMP,ContextTokens\n2023-11-16 18:15:46.68,374\n", ("GeneratedTokens",)),
    "other columns": ("a,b,c\n1,2,3\n", ("column",)),
    "short row": (TRACE_HEAD + TRACE_ROW + "2023-11-16 18:15:47,3\n", ("line 3", "columns")),
    "long row": (TRACE_HEAD + "2023-11-16 18:15:47,3,4,5\n", ("line 2", "columns")),
    "bad time": (TRACE_HEAD + "yesterday,3,4\n", ("line 2.TIMESTAMP = 'yesterday'", "must be a time")),
    "bad fraction": (TRACE_HEAD + "2023-11-16 18:15:46.x,3,4\n", ("line 2.TIMESTAMP", "must be a time")),
    "tokens as text": (TRACE_HEAD + "2023-11-16 18:15:46.68,many,44\n", ("line 2.ContextTokens = 'many'", "integer")),
    "zero tokens": (
        TRACE_HEAD + "2023-11-16 18:15:46.68,0,44\n",
        (
            "line 2.ContextTokens = 0",
            "--drop-empty",
        ),
    ),
    "negative tokens": (TRACE_HEAD + "2023-11-16 18:15:46.68,5,-4\n", ("line 2.GeneratedTokens = '-4'",)),
    "fractional tokens": (TRACE_HEAD + "2023-11-16 18:15:46.68,5,4.5\n", ("line 2.GeneratedTokens = '4.5'",)),
    "enormous tokens": (TRACE_HEAD + "2023-11-16 18:15:46.68,5,99999999999\n", ("line 2.GeneratedTokens",)),
    "back in time": (TRACE_HEAD + TRACE_ROW + "2023-11-16 18:15:45,5,4\n", ("line 3.TIMESTAMP", "earlier")),
    "a quote that never ends": (TRACE_HEAD + '"2023-11-16 18:15:46.68,374,44\n' * 9, ("t.csv",)),
    "NUL bytes": (TRACE_HEAD + "\0\0\0\n", ("t.csv",)),
}


@pytest.mark.parametrize("case", TRACES)
def test_broken_trace(case: str, refused: Run) -> None:
    text, says = TRACES[case]
    Path("t.csv").write_text(text)
    refused("simulate", "--trace", "t.csv", "--kv-capacity", "4096", "--json", "out.json", says=("t.csv", *says))


def test_trace_options(refused: Run) -> None:
    Path("t.csv").write_text(TRACE_HEAD + TRACE_ROW)
    trace = ("simulate", "--trace", "t.csv", "--kv-capacity", "4096")
    refused("simulate", "--trace", "t.csv", says=("--kv-capacity",))
    refused("simulate", "--trace", "no.csv", "--kv-capacity", "9", says=("no.csv", "cannot be read"))
    refused(*trace, "--window", "5:9", says=("t.csv", "window"))
    refused(*trace, "--window", "9:5", says=("--window = '9:5'", "A < B"))
    refused(*trace, "--window", "a:b", says=("--window = 'a:b'",))
    refused(*trace, "--window", "0:nan", says=("--window",))
    refused(*trace, "--first", "0", says=("--first", "'0'", ">= 1"))
    refused(*trace, "--rate-scale", "0", says=("--rate-scale", "'0'", "> 0"))
    refused(*trace, "--rate-scale", "nan", says=("--rate-scale", "'nan'"))
    refused(*trace, "--output-scale", "-1", says=("--output-scale", "'-1'"))
    refused(*trace, "--kv-scale", "1e-9", says=("kv_capacity_tokens = 0", ">= 1"))
    refused(*trace, "--kv-scale", "1e300", says=("kv_capacity_tokens",))
    refused(*trace, "--window", "0:1e300", says=("--window = '0:1e300'",))
    refused(*trace, "--arrivals", "often", says=("--arrivals", "'often'", "poisson"))
    refused(*trace, "--arrivals", "poisson:0", says=("--arrivals = 'poisson:0'", "poisson:RATE"))
    refused(*trace, "--arrivals", "gamma:1:1e300", says=("--arrivals = 'gamma:1:1e300'", "gamma:RATE:CV"))
    refused(*trace, "--max-tokens", "20", says=("t.csv", "--max-tokens = 20"))
    refused(*trace, "--max-tokens", "1", says=("--max-tokens", "'1'"))


USAGE: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "nothing": ((), ("required", "--help")),
    "unknown command": (("simulat", "x"), ("simulat", "invalid choice")),
    "unknown option": (("simulate", "x", "--jsn", "y"), ("--jsn",)),
    "no instance": (("simulate",), ("INSTANCE", "--trace")),
    "instance and trace": (("simulate", "paper-7.2-i0001", "--trace", "t.csv"), ("one of the two",)),
    "two instances": (("simulate", "paper-7.2-i0001", "paper-7.2-i0002"), ("paper-7.2-i0002",)),
    "time limit zero": (("simulate", "paper-7.2-i0001", "--time-limit", "0"), ("--time-limit", "'0'", "> 0")),
    "time limit NaN": (("simulate", "paper-7.2-i0001", "--time-limit", "nan"), ("--time-limit", "'nan'")),
    "time limit text": (("simulate", "paper-7.2-i0001", "--time-limit", "1m"), ("--time-limit", "'1m'")),
    "workers zero": (("simulate", "paper-7.2-i0001", "--workers", "0"), ("--workers", "'0'", ">= 1")),
    "seed negative": (("simulate", "paper-7.2-i0001", "--seed", "-1"), ("--seed",)),
    "seed fractional": (("simulate", "paper-7.2-i0001", "--seed", "1.5"), ("--seed", "'1.5'", "integer")),
    "unknown scheduler": (("simulate", "paper-7.2-i0001", "--schedulers", "vlm"), ("'vlm'", "did you mean 'vllm'")),
    "unknown victim rule": (("simulate", "paper-7.2-i0001", "--schedulers", "vllm_srff"), ("vllm_srff",)),
    "no scheduler": (("simulate", "paper-7.2-i0001", "--schedulers", ","), ("--schedulers", "at least one")),
    "unknown cost model": (("simulate", "paper-7.2-i0001", "--cost-model", "linear/x"), ("linear/x",)),
    "two dashes": (("simulate", "paper-7.2-i0001", "--seed=--"), ("--seed", "needs a value")),
    "unknown list": (("list", "solver"), ("solver", "invalid choice")),
    "check without instance": (("check", "s.json"), ("INSTANCE",)),
    "check no such file": (("check", "s.json", "paper-7.2-i0001"), ("s.json", "cannot be read")),
    "break-even of nothing": (("breakeven", "--cost-model", "linear/x"), ("linear/x",)),
    "bound gap text": (("bound", "paper-7.2-i0001", "--until-gap", "near"), ("--until-gap", "near")),
    "bound gap negative": (("bound", "paper-7.2-i0001", "--until-gap=-1%"), ("--until-gap",)),
    "unknown solver": (("compare", "paper-7.2-i0001", "--solver", "gurobbi"), ("gurobbi",)),
    "unknown formulation": (("compare", "paper-7.2-i0001", "--formulation", "bigmm"), ("bigmm",)),
}


@pytest.mark.parametrize("case", USAGE)
def test_wrong_usage(case: str, refused: Run) -> None:
    words, says = USAGE[case]
    Path("t.csv").write_text(TRACE_HEAD + TRACE_ROW)
    refused(*words, says=says)


@pytest.mark.parametrize("command", ["simulate", "bound", "compare"])
def test_output_that_cannot_be_written_is_refused_before_the_work(command: str, refused: Run) -> None:
    Path("folder").mkdir()
    refused(command, "paper-7.2-i0001", "--json", "no/such/out.json", says=("no/such/out.json", "cannot be written"))
    refused(command, "paper-7.2-i0001", "--json", "folder", says=("folder", "cannot be written"))


def test_a_failed_run_keeps_the_file_that_was_there(refused: Run) -> None:
    Path("out.json").write_text("before")
    Path("a.yaml").write_text(HEAD)
    refused("simulate", "a.yaml", "--json", "out.json")
    assert Path("out.json").read_text() == "before"


def test_good_files_are_accepted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What the cases above break works when it is whole."""
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "t.csv").write_text(TRACE_HEAD + TRACE_ROW)
    (tmp_path / "s.json").write_text(schedule())
    assert main(["simulate", str(tmp_path / "a.yaml"), "--schedulers", "vllm"]) == 0
    assert main(["simulate", "--trace", str(tmp_path / "t.csv"), "--kv-capacity", "4096"]) == 0
    assert main(["check", str(tmp_path / "s.json"), str(tmp_path / "a.yaml")]) == 0
    assert "valid: 1 requests, 2 batches" in capsys.readouterr().out


JSON_TRACES: dict[str, tuple[str, tuple[str, ...]]] = {
    "other keys": ('{"a": 1}\n', ("t.jsonl",)),
    "second row incomplete": ('{"timestamp": 0, "input_length": 3, "output_length": 2}\n{"timestamp": 1}\n',
                              ("line 2.input_length", "missing")),
    "not JSON": ('{"timestamp": 0, "input_length": 3, "output_length": 2}\n{\n', ("line 2",)),
    "text for a number": ('{"timestamp": 0, "input_length": "x", "output_length": 2}\n', ("line 1.input_length",)),
    "null": ('{"timestamp": null, "input_length": 3, "output_length": 2}\n', ("line 1.timestamp",)),
    "NaN": ('{"timestamp": NaN, "input_length": 3, "output_length": 2}\n', ("line 1",)),
    "a list inside": ('{"timestamp": 0, "input_length": [3], "output_length": 2}\n', ("line 1.input_length",)),
    "true": ('{"timestamp": 0, "input_length": true, "output_length": 2}\n', ("line 1.input_length",)),
    "negative time": ('{"timestamp": -5, "input_length": 3, "output_length": 2}\n', ("line 1.timestamp",)),
    "enormous time": ('{"timestamp": 1e300, "input_length": 3, "output_length": 2}\n', ("line 1.timestamp",)),
    "empty list": ("[]", ("no requests",)),
    "a number": ("[1, 2]", ("t.jsonl",)),
    "triples": ("[[1, 2], [1, 2, 3]]", ("t.jsonl",)),
}  # fmt: skip


@pytest.mark.parametrize("case", JSON_TRACES)
def test_broken_json_trace(case: str, refused: Run) -> None:
    text, says = JSON_TRACES[case]
    Path("t.jsonl").write_text(text)
    refused("simulate", "--trace", "t.jsonl", "--kv-capacity", "4096", says=("t.jsonl", *says))


def test_broken_gzip(refused: Run) -> None:
    import gzip

    whole = gzip.compress((TRACE_HEAD + TRACE_ROW * 500).encode())
    for content in (whole[: len(whole) // 2], b"no gzip at all", whole[:20] + b"\0" * 30):
        Path("t.csv.gz").write_bytes(content)
        refused("simulate", "--trace", "t.csv.gz", "--kv-capacity", "4096", says=("t.csv.gz",))


def test_names_no_file_can_have(refused: Run) -> None:
    for name in ("x" * 5000, "a\\0b", "a/" * 3000):
        Path("a.yaml").write_text(GOOD + f'cost_model: "{name}"\n')
        refused("simulate", "a.yaml", says=("a.yaml: cost_model",))
    refused("simulate", "--trace", "x" * 5000, "--kv-capacity", "4", says=("cannot be read",))
    refused("simulate", "a\0b", says=("no such file",))


def test_pipes_and_links_are_written_through(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe (or a device) must stay one, and so must a link."""
    pipe, link, real = tmp_path / "pipe", tmp_path / "link.json", tmp_path / "real.json"
    os.mkfifo(pipe)
    real.write_text("before")
    link.symlink_to(real)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    assert main(["simulate", "paper-7.2-i0001", "--json", str(pipe)]) == 0
    reader.join(10)
    assert main(["simulate", "paper-7.2-i0001", "--json", str(link)]) == 0
    assert pipe.is_fifo() and link.is_symlink()
    assert read == [real.read_text()]
    assert json.loads(real.read_text())["schema_version"] == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.json", "pipe", "real.json"]
