"""What each operator of a batch takes at least, and whether compute or memory binds.

FLOPs, bytes, intensity and least time per layer and GPU from the shape of the LLM and the data sheet of the GPU (Kim et
al., equations 2-4 and section 5.2). A batch is written as slices joined by commas: prefill:C[+M][xB] processes C tokens
for each of B requests that hold M KVs each, decode:M[xB] one token for each of B requests that hold M KVs.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bounds.cli_options import integer, write_json, write_text
from bounds.roofline import ClassRow, bars, classes, measure
from bounds.table import format_table
from sim.cost.hardware import find_gpu
from sim.cost.llm import find_llm
from sim.cost.roofline import OperatorCost, Slice, attention_intensity, operators, roofline_cost_model
from sim.cost.setups import Setup
from sim.errors import InputError

if TYPE_CHECKING:
    from sim.cost.fit.profiles import Profile

DEFAULT_BATCHES = ("prefill:128", "prefill:2048", "decode:1024", "decode:1024x64", "decode:1024x512",
                   "prefill:512,decode:1024x64")  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--llm", default="llama2-7b", metavar="NAME", help="default llama2-7b")
    parser.add_argument("--gpu", default="a100", metavar="NAME", help="a100 (default), h100 or h200")
    parser.add_argument("--tp", type=integer(1), default=1, metavar="N", help="tensor parallel degree (default 1)")
    parser.add_argument("--batch", action="append", metavar="SPEC", help="repeatable; see above")
    parser.add_argument("--profile", action="append", metavar="FILE", default=[],
                        help="measured operators to set beside the theory; repeatable (see calibrate)")  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the roofline as a cost model file")
    parser.add_argument("--json", metavar="FILE", help="write the result as JSON; - for stdout")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="save the figure here")


def run(args: argparse.Namespace) -> int:
    """Print the tables, write JSON, the figure and the cost model."""
    setup = Setup(find_llm(args.llm), find_gpu(args.gpu), args.tp)
    batches = {text: parse_batch(text) for text in args.batch or DEFAULT_BATCHES}
    costs = {text: operators(setup, batch) for text, batch in batches.items()}
    profiles: list[Profile] = []
    if args.profile:
        from sim.cost.fit.profiles import read_profiles

        profiles = [profile for file in args.profile for profile in read_profiles(file, args.gpu)]
    measured = measure(profiles, setup)
    rows = classes(setup, measured)
    if args.json != "-":
        _print(setup, costs)
        _print_measured(rows)
    write_json(_result(setup, costs) | {"measured": [row.to_dict() for row in rows]}, args.json)
    if args.out is not None:
        write_text(json.dumps(roofline_cost_model(setup).to_dict(), indent=1) + "\n", args.out)
    if args.plots is not None:
        from bounds.cost_plots import plot_roofline, plot_theory_practice, save_plot

        save_plot(plot_roofline(setup, costs, measured), args.plots, f"roofline-{setup.name}")
        batches_measured = bars(setup, measured)
        if batches_measured:
            save_plot(plot_theory_practice(setup, batches_measured), args.plots, f"theory-practice-{setup.name}")
    return 0


def parse_batch(text: str) -> list[Slice]:
    """Read a batch as written on the command line.

    Raises
    ------
    InputError
        If it is not in that form.

    Examples
    --------
    >>> fill, decode = parse_batch("prefill:512+1024x2,decode:300x64")
    >>> fill
    Slice(tokens=512, kv_before=1024, requests=2, decode=False)
    """
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"(prefill|decode):(\d+)(?:\+(\d+))?(?:x(\d+))?", part.strip())
        if match is None or (match[1] == "decode" and match[3] is not None) or len(part) > 60:
            raise InputError("must be slices like prefill:512+1024x2 or decode:1024x64, joined by commas",
                             field="--batch", value=text)  # fmt: skip
        first, requests = int(match[2]), int(match[4] or 1)
        decode = match[1] == "decode"
        if first < 1 or requests < 1:
            raise InputError("tokens, KVs and requests must be >= 1", field="--batch", value=text)
        found.append(Slice(1, first, requests, True) if decode else Slice(first, int(match[3] or 0), requests))
    return found


def _print(setup: Setup, costs: dict[str, list[OperatorCost]]) -> None:
    gpu = setup.gpu
    print(f"{setup.llm.title} on {setup.tensor_parallel} x {gpu.title}, per layer and GPU; compute binds from "
          f"{gpu.turning_point:.0f} FLOPs/byte on")  # fmt: skip
    long, decode = attention_intensity(setup, 128 * setup.llm.head_dim), attention_intensity(setup, 1)
    print(f"attention tends to {long:.2f} FLOPs per element for long prefills and {decode:.2f} for decodes")
    for text, found in costs.items():
        total = sum(cost.time_ms for cost in found)
        print(f"\n{text}: {total:.4f} ms a layer, {total * setup.llm.layers:.3f} ms a batch")
        print(f"  {'operator':<18}{'GFLOPs':>12}{'MB':>12}{'FLOPs/byte':>12}{'ms':>10}{'share':>8}  bound by")
        for cost in found:
            print(f"  {cost.name:<18}{cost.flops / 1e9:>12.3f}{float(cost.bytes) / 1e6:>12.3f}{cost.intensity:>12.1f}"
                  f"{cost.time_ms:>10.4f}{cost.time_ms / total:>8.1%}  {cost.bound}")  # fmt: skip


def _print_measured(rows: list[ClassRow]) -> None:
    if rows:
        print("\nmeasured over theory (medians), and the share of the data sheet's peak that is reached")
        print(format_table(
            ["operator", "tokens", "n", "measured / theory", "of peak FLOPS", "of bandwidth", "theory: bound by"],
            [[row.operator, f"{row.least_tokens:,}-{row.most_tokens:,}", row.count, row.ratio,
              f"{row.flops_share:.0%}", f"{row.bandwidth_share:.0%}", row.bound] for row in rows],
        ))  # fmt: skip


def _result(setup: Setup, costs: dict[str, list[OperatorCost]]) -> dict[str, Any]:
    batches = [
        {"batch": text, "layer_ms": sum(cost.time_ms for cost in found),
         "batch_ms": sum(cost.time_ms for cost in found) * setup.llm.layers,
         "operators": [{"name": c.name, "flops": c.flops, "bytes": float(c.bytes),
                        "intensity_flops_per_byte": c.intensity, "time_ms": c.time_ms, "bound": c.bound}
                       for c in found]}
        for text, found in costs.items()
    ]  # fmt: skip
    return {"schema_version": 1, "setup": setup.name, "llm": setup.llm.title, "gpu": setup.gpu.title,
            "tensor_parallel": setup.tensor_parallel, "turning_point_flops_per_byte": setup.gpu.turning_point,
            "attention_flops_per_element": {
                "long prefill": attention_intensity(setup, 128 * setup.llm.head_dim),
                "decode": attention_intensity(setup, 1)},
            "kv_capacity_tokens": setup.kv_capacity_tokens(), "batches": batches}  # fmt: skip
