"""Answer, with certified numbers, what engineers ask: does everything fit, what does recomputing cost, what would help?

One page: is every request feasible in M? How much can scheduling save at all? How much time goes to recomputing, and
how much of it could any victim rule save? Which victim rule, reservation or max_num_seqs is nearest the optimum? Would
twice the KV memory, bandwidth or compute help, and by how much at most? Recompute or swap?
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bounds.cli import EXIT_DONE, EXIT_INTERRUPTED
from bounds.cli_options import add_common, add_workload, load_workload, write_json
from bounds.solving import stop_on_interrupt
from sim.schedulers import parse_name

if TYPE_CHECKING:
    from bounds.diagnose import Diagnosis

DEFAULT_SCHEDULER = "vllm-v1-0.33"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_workload(parser)
    parser.add_argument("--scheduler", default=DEFAULT_SCHEDULER, metavar="NAME",
                        help="the one in use; what is varied is varied around it (default %(default)s)")  # fmt: skip
    parser.add_argument("--plots", metavar="DIR", help="write the figure into this folder")
    add_common(parser)


def run(args: argparse.Namespace) -> int:
    """Diagnose; print the page, write the JSON and the figure."""
    from bounds.diagnose import diagnose
    from bounds.diagnose_report import page

    parse_name(args.scheduler)
    instance = load_workload(args)

    def tell(text: str) -> None:
        if not args.quiet:
            print(f"servebound: {text}", file=sys.stderr, flush=True)

    with stop_on_interrupt() as stop:
        found = diagnose(instance, args.scheduler, time_limit_s=args.time_limit, tell=tell, stop=stop)
    if args.json != "-":
        print(page(found))
    if args.plots:
        path = _draw(found, Path(args.plots))
        if args.json != "-":
            print(f"\nfigure: {path}")
    write_json(found.to_dict(), args.json)
    return EXIT_INTERRUPTED if stop.is_set() else EXIT_DONE


def _draw(found: Diagnosis, folder: Path) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    from bounds.diagnose_report import plot_diagnosis
    from bounds.plot import save_figure

    figure = plot_diagnosis(found).figure
    assert isinstance(figure, Figure)
    return save_figure(figure, folder, f"{found.instance.name}-diagnosis")
