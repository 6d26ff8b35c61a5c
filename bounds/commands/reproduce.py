"""Rerun the paper's experiments and say which claims hold, with the certified lower bound beside each.

Without CLAIM all claims are rerun; ``--list`` prints their names. Finished cells are kept in --out: an interrupted run
continues where it stopped. Writes report.html (one file, no network), results.csv and results.parquet, and figures.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bounds.claims import claim_figures, claim_names, load_claim
from bounds.cli_options import add_common, write_json, write_text
from sim.errors import InputError
from sim.registry import unknown


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("claims", nargs="*", metavar="CLAIM", help="claims to rerun (default: all; see --list)")
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument("--quick", dest="effort", action="store_const", const="quick", default="quick",
                        help="fewer, smaller cells (default)")  # fmt: skip
    effort.add_argument("--full", dest="effort", action="store_const", const="full", help="every cell of the paper")
    parser.add_argument("--out", default="results/reproduce", metavar="DIR", help="folder for results (%(default)s)")
    parser.add_argument("--cluster", metavar="KIND[:ADDRESS]", help="run on a dask or ray cluster instead of processes")
    parser.add_argument("--list", action="store_true", help="print the claims and exit")
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Measure, judge, print and write."""
    known = claim_names()
    if args.list:
        for name in known:
            text = (load_claim(name).__doc__ or "").strip().splitlines()[0]
            print(f"{name:<28}{load_claim(name).SECTION:<6}{text}")
        return 0
    wanted = [name.replace("-", "_").replace(".", "_") for name in args.claims] or known
    for name, given in zip(wanted, args.claims, strict=False):
        if name not in known:
            raise InputError(unknown(given, known), field="CLAIM")
    from bounds.reproduce.runner import run as measure_claims

    folder = Path(args.out)
    with _progress(args.quiet) as report:
        outcomes = measure_claims(wanted, args.effort, folder, workers=args.workers, cluster=args.cluster,
                                  progress=report)  # fmt: skip
    lines: list[dict[str, Any]] = [
        verdict.to_dict() | {"name": outcome.claim, "seconds": outcome.seconds, "cpu_seconds": outcome.cpu_seconds}
        for outcome in outcomes for verdict in outcome.verdicts
    ]  # fmt: skip
    if args.json != "-":
        _print(lines)
    _write(outcomes, folder, args.effort)
    if args.json != "-":
        print(f"report: {folder / 'report.html'}")
    write_json({"schema_version": 1, "effort": args.effort, "claims": lines}, args.json)
    return 0


def _print(lines: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from bounds.report import console

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("section", "claim", "paper", "ours", "verdict", "reason"):
        table.add_column(column, overflow="fold")
    table.add_column("CPU s", justify="right")
    before = None
    for line in lines:
        seconds = f"{line['cpu_seconds']:.1f}" if line["name"] != before else ""
        before = line["name"]
        table.add_row(*(str(line[c]) for c in ("section", "claim", "paper", "ours", "verdict", "reason")), seconds)
    console().print(table)
    total = sum({line["name"]: line["cpu_seconds"] for line in lines}.values())
    print(f"{total:,.0f} CPU seconds in all; under other cost models and what was left on the table: see the report")


def _write(outcomes: list[Any], folder: Path, effort: str) -> None:
    import matplotlib
    import pandas as pd

    matplotlib.use("Agg")
    from bounds.cli import package_version
    from bounds.plot import save_figure
    from bounds.reproduce.html import encoded, render

    rows = [{"claim": outcome.claim, "effort": effort} | row for outcome in outcomes for row in outcome.rows]
    table = pd.DataFrame(rows)
    write_text(table.to_csv(index=False), folder / "results.csv")
    temporary = folder / ".results.parquet.part"
    table.to_parquet(temporary)
    temporary.replace(folder / "results.parquet")
    sections = []
    for number, outcome in enumerate(outcomes):
        figures = []
        for name, figure in claim_figures(outcome.claim, outcome.rows):
            figures.append((name, encoded(figure)))
            save_figure(figure, folder / "figures", f"{outcome.claim}-{name}")
        title = (load_claim(outcome.claim).__doc__ or outcome.claim).strip().splitlines()[0]
        sections.append({"number": number, "title": title, "verdicts": [v.to_dict() for v in outcome.verdicts],
                         "cpu_seconds": outcome.cpu_seconds, "figures": figures})  # fmt: skip
    intro = (
        "Claims of Kim, Li, Hong and Ailamaki, “Faster LLM Inference using DBMS-Inspired Preemption and Cache "
        "Replacement Policies” (arXiv:2411.07447), rerun on simulated schedules. Every schedule was replayed by one "
        "rules module; every lower bound holds for any schedule. Percentages are given as the paper counts them "
        "(worse / better - 1) and as savings (1 - better / worse)."
    )
    cells, seconds = sum(outcome.cells for outcome in outcomes), sum(outcome.cpu_seconds for outcome in outcomes)
    footer = f"servebound {package_version()}, effort: {effort}, {cells:,} cells, {seconds:,.0f} CPU seconds"
    write_text(render("Every claim of the paper", intro, sections, footer), folder / "report.html")


@contextlib.contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[int, int, str], None]]:
    """Cells done, on stderr: a live bar on a terminal, plain lines otherwise."""
    if quiet:
        yield lambda done, total, word: None
    elif not sys.stderr.isatty():
        yield lambda done, total, word: print(f"{done}/{total} cells  {word}", file=sys.stderr, flush=True)
    else:
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("measuring", total=None)
            yield lambda done, total, word: bar.update(task, completed=done, total=total, description=word)
