"""List what is there: schedulers, victims, objectives, solvers, bounds, cost-models, instances, traces, ..."""

from __future__ import annotations

import argparse
import ast
import importlib.util

from sim.cost import cost_model_names
from sim.instance import shipped_instances
from sim.registry import names
from sim.traces import shipped_traces

PACKAGES = {
    "schedulers": "sim.schedulers",
    "victims": "sim.preemption",
    "admission": "sim.admission",
    "queues": "sim.queues",
    "objectives": "csp.objectives",
    "formulations": "csp.formulations",
    "solvers": "csp.solvers",
    "bounds": "bounds.lower",
    "interrupt-policies": "sim.interrupts.policies",
    "interrupt-workloads": "sim.interrupts.workloads",
}
OTHERS = {"cost-models": cost_model_names, "instances": shipped_instances, "traces": shipped_traces}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("what", nargs="?", choices=[*PACKAGES, *OTHERS], help="only this list")


def run(args: argparse.Namespace) -> int:
    """Print the lists with one line each."""
    for what in [args.what] if args.what else [*PACKAGES, *OTHERS]:
        if not args.what:
            print(f"{what}:")
        indent = "" if args.what else "  "
        for name, text in _lines(what):
            print(f"{indent}{name:<24}{text}".rstrip())
    return 0


def _lines(what: str) -> list[tuple[str, str]]:
    if what in OTHERS:
        return [(name, "") for name in OTHERS[what]()]
    return [_entry(f"{PACKAGES[what]}.{name}", name) for name in names(PACKAGES[what])]


def _entry(module: str, name: str) -> tuple[str, str]:
    """Spelling (``NAME``, or the file's name) and first docstring line of a plug-in, read without importing it."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return name, ""
    with open(spec.origin, encoding="utf-8") as stream:
        tree = ast.parse(stream.read())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "NAME":
            name = str(ast.literal_eval(node.value))
    text = ast.get_docstring(tree) or ""
    return name, text.splitlines()[0] if text else ""
