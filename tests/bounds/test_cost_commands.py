"""The sub-commands about cost models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bounds.cli import main
from bounds.roofline import bars, measure
from sim.cost.fit.profiles import read_profiles
from sim.cost.model import load_cost_model
from sim.cost.roofline import Slice, operators
from sim.cost.setups import find_setup


def test_roofline_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code = main(["roofline", "--batch", "prefill:2048", "--batch", "decode:1024x64", "--json", str(tmp_path / "r.json"),
                 "--plots", str(tmp_path), "--out", str(tmp_path / "cost.json")])  # fmt: skip
    out = capsys.readouterr().out
    assert code == 0 and "128.00 FLOPs per element" in out and "1.98 for decodes" in out
    data = json.loads((tmp_path / "r.json").read_text())
    bound = {(b["batch"], o["name"]): o["bound"] for b in data["batches"] for o in b["operators"]}
    assert bound["prefill:2048", "UG_proj"] == "compute" and bound["prefill:2048", "prefill attention"] == "memory"
    assert bound["decode:1024x64", "UG_proj"] == "memory" and bound["decode:1024x64", "decode attention"] == "memory"
    assert (tmp_path / "roofline-llama2-7b-a100.png").stat().st_size > 10_000
    assert load_cost_model(str(tmp_path / "cost.json")).groups == load_cost_model("roofline/llama2-7b-a100").groups


@pytest.mark.parametrize("bad", ["prefill", "decode:5+3", "prefill:0", "prefill:5x0", "x:1", "prefill:1,,decode:2"])
def test_roofline_refuses_bad_batches(bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["roofline", "--batch", bad]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_roofline_refuses_unknown_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["roofline", "--llm", "llama2-8b"]) == 2
    assert main(["roofline", "--gpu", "a10"]) == 2
    assert main(["roofline", "--tp", "3"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


def write_engine_log(path: Path) -> None:
    """Forty batches of a made-up engine: max(9, 6 + 0.06 T) + 0.001 D ms."""
    lines = ["n_p,n_d,T,Q,P,D,ms"]
    for i in range(40):
        fill, steps, reads = (37 * i) % 500, 1 + i % 7, 100 * (1 + i % 5)
        tokens = fill + steps
        ms = max(9.0, 6 + 0.06 * tokens) + 0.001 * steps * reads
        lines.append(f"{int(fill > 0)},{steps},{tokens},{fill**2},0,{steps * reads},{ms}")
    path.write_text("\n".join(lines) + "\n")


def test_calibrate_command_on_an_engine_log(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log, out, report = tmp_path / "log.csv", tmp_path / "mine.json", tmp_path / "report.json"
    write_engine_log(log)
    code = main(["calibrate", str(log), "--kind", "max-affine", "--name", "mine", "--out", str(out), "--json",
                 str(report)])  # fmt: skip
    text = capsys.readouterr().out
    assert code == 0 and "whole batch" in text and "held-out" in text
    errors = {row["rows"]: row["mean"] for row in json.loads(report.read_text())["fit"]["errors"]}
    assert errors["held-out"] < 0.01
    document = json.loads(out.read_text())
    assert document["fit"]["command"] == "servebound calibrate log.csv --kind max-affine --out mine.json"
    assert str(tmp_path) not in out.read_text()
    assert main(["breakeven", "--cost-model", str(out)]) == 0


def test_calibrate_errors_are_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    write_engine_log(log)
    assert main(["calibrate", str(log), "--llm", "llama2-7b"]) == 2
    assert main(["calibrate", str(tmp_path / "none.csv")]) == 2
    assert main(["calibrate", str(log), "--out", str(tmp_path / "no" / "where.json")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


def write_layer_profile(path: Path, factor: float) -> None:
    """Every operator takes ``factor`` times its roofline on Llama-2-7B, A100, in Vidur's columns."""
    setup = find_setup("llama2-7b-a100")
    columns = {"QKV_proj": "attn_pre_proj", "O_proj": "attn_post_proj", "UG_proj": "mlp_up_proj",
               "D_proj": "mlp_down_proj"}  # fmt: skip
    small = ("input_layernorm", "attn_rope", "post_attention_layernorm", "mlp_act", "add")
    names = ["num_tensor_parallel_workers", "num_tokens", *columns.values(), *small]
    lines = [",".join(f"time_stats.{n}.median" if i > 1 else n for i, n in enumerate(names))]
    for tokens in (1, 8, 64, 300, 1000, 3000):
        theory = {cost.name: cost.time_ms for cost in operators(setup, [Slice(tokens)])}
        shares = [factor * theory[name] for name in columns] + [factor * theory["elementwise"] / len(small)] * len(
            small
        )
        lines.append(",".join(map(str, [1, tokens, *shares])))
    path.write_text("\n".join(lines) + "\n")


def test_roofline_against_measurement(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    layer, attention = tmp_path / "mlp.csv", tmp_path / "attention.csv"
    write_layer_profile(layer, 1.25)
    setup = find_setup("llama2-7b-a100")
    rows = ["batch_size,prefill_chunk_size,kv_cache_size,is_prefill,attn_decode_median_ms,attn_prefill_median_ms"]
    for n in (1, 4, 16, 64):
        rows.append(f"{n},0,1000,False,{2 * operators(setup, [Slice(1, 1000, n, True)])[1].time_ms},")
    for c in (40, 500, 2000):
        rows.append(f"1,{c},0,True,,{3 * operators(setup, [Slice(c)])[1].time_ms}")
    attention.write_text("\n".join(rows) + "\n")
    code = main(["roofline", "--batch", "decode:9", "--profile", str(layer), "--profile", str(attention), "--json",
                 str(tmp_path / "r.json"), "--plots", str(tmp_path)])  # fmt: skip
    assert code == 0 and "measured / theory" in capsys.readouterr().out
    measured = json.loads((tmp_path / "r.json").read_text())["measured"]
    ratios = {row["operator"]: row["measured_over_theory"] for row in measured}
    assert ratios["decode attention"] == pytest.approx(2) and ratios["prefill attention"] == pytest.approx(3)
    for name in ("QKV_proj", "UG_proj", "elementwise"):
        assert ratios[name] == pytest.approx(1.25)
    compute = [row for row in measured if row["operator"] == "UG_proj" and row["tokens"][0] >= 256]
    assert all(row["peak_flops_share"] == pytest.approx(0.8) and row["bound"] == "compute" for row in compute)
    found = bars(setup, measure([p for f in (layer, attention) for p in read_profiles(str(f))], setup))
    decodes = [f"decode {n}\nat 1000" for n in (1, 4, 16, 64)]
    assert [bar.label for bar in found] == ["prefill 40", "prefill 500", "prefill 2000", *decodes]
    assert (tmp_path / "theory-practice-llama2-7b-a100.png").stat().st_size > 10_000
