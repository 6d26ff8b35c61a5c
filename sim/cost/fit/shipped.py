"""The fitted cost models that come with the package, and the profiles each was fitted to.

``python -m sim.cost.fit.shipped PROFILES OUT`` fits them all again from a folder of profiles. Sources: Vidur
(microsoft/vidur, MIT licence, ``data/profiling``: medians, ms per layer) and aiconfigurator-core 0.12.0 (NVIDIA,
Apache-2.0: tables measured with vLLM 0.14 on A100, 0.24 on H100 and H200; bf16, head dimension 128).
"""

from __future__ import annotations

import json
import sys
from importlib import resources
from pathlib import Path
from typing import Any

from sim.cost.fit.calibrate import KINDS, Calibration, calibrate
from sim.cost.fit.profiles import read_profiles
from sim.cost.setups import find_setup

_TABLES = "{table}_bf16_{gpu}_sxm_vllm.csv"


def _attention(gpu: str) -> list[str]:
    return [_TABLES.format(table=table, gpu=gpu) for table in ("context_attention", "generation_attention")]


def _gemm(gpu: str) -> list[str]:
    return [_TABLES.format(table="gemm", gpu=gpu)]


def _vidur(llm: str, gpu: str) -> list[str]:
    return [f"nonattention_{llm}_{gpu}_vidur.csv"]


def _all_reduce(gpu: str) -> list[str]:
    return [f"all_reduce_{gpu}_dgx_vidur.csv"]


RECIPES: dict[str, list[str]] = {
    "llama2-7b-a100": [*_vidur("llama2-7b", "a100"), "attention_llama2-7b_a100_vidur_sample.csv"],
    "llama2-7b-h100": _vidur("llama2-7b", "h100") + _attention("h100"),
    "llama2-7b-h200": _gemm("h200") + _attention("h200"),
    "llama3-8b-a100": _vidur("llama3-8b", "a100") + _attention("a100"),
    "llama3-8b-h100": _gemm("h100") + _attention("h100"),
    "llama3-8b-h200": _gemm("h200") + _attention("h200"),
    "llama3-70b-4xa100": _vidur("llama3-70b", "a100") + _all_reduce("a100") + _attention("a100"),
    # A layer of Llama-2-70B has the shape of one of Llama-3-70B.
    "llama3-70b-4xh100": _vidur("llama2-70b", "h100") + _all_reduce("h100") + _attention("h100"),
    # H200 has the NVLink of H100.
    "llama3-70b-4xh200": _gemm("h200") + _all_reduce("h100") + _attention("h200"),
    "qwen2.5-72b-4xa100": _gemm("a100") + _all_reduce("a100") + _attention("a100"),
    "qwen2.5-72b-4xh100": _gemm("h100") + _all_reduce("h100") + _attention("h100"),
    "qwen2.5-72b-4xh200": _gemm("h200") + _all_reduce("h100") + _attention("h200"),
}
"""Profiles per setup; each is fitted as linear and as max-affine."""

_CREDITS = {
    "vidur": "Vidur (microsoft/vidur, MIT licence)",
    "vllm": "aiconfigurator-core 0.12.0 (NVIDIA, Apache-2.0 licence)",
}


def refit(setup_name: str, kind: str, folder: Path) -> Calibration:
    """Fit one of the shipped cost models again."""
    files = RECIPES[setup_name]
    setup = find_setup(setup_name)
    tp = f" --tp {setup.tensor_parallel}" if setup.tensor_parallel > 1 else ""
    name = f"{KINDS[kind]}/{setup_name}"
    command = (f"servebound calibrate {' '.join(files)} --llm {setup.llm.name} --gpu {setup.gpu.name}{tp} "
               f"--kind {kind} --out {file_name(name)}")  # fmt: skip
    profiles = [profile for file in files for profile in read_profiles(str(folder / file))]
    found = calibrate(profiles, setup, kind=kind, command=command)
    credits = [text for key, text in _CREDITS.items() if any(key in file for file in files)]
    found.document["source"] += "; measured by the authors of " + " and ".join(credits)
    return found


def file_name(name: str) -> str:
    """File of a shipped cost model."""
    return name.replace("/", "--") + ".json"


def shipped_errors(rows: str = "held-out") -> list[dict[str, Any]]:
    """Error tables of all shipped fits, as their data files state them, one row per cost model and operator group."""
    found = []
    for setup_name in RECIPES:
        for prefix in KINDS.values():
            name = f"{prefix}/{setup_name}"
            text = (resources.files("sim.cost") / "data" / file_name(name)).read_text("utf-8")
            errors = json.loads(text)["fit"]["errors"]
            found += [{"cost_model": name} | row for row in errors if row["rows"] == rows]
    return found


def main(folder: Path, out: Path) -> None:
    """Fit all and write their files."""
    for setup_name in RECIPES:
        for kind in KINDS:
            found = refit(setup_name, kind, folder)
            path = out / file_name(found.cost.name)
            path.write_text(json.dumps(found.document, indent=1) + "\n", "utf-8")
            print(path.name, file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
