"""Options and output that sub-commands share."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from sim.cost.model import load_cost_model
from sim.errors import InputError
from sim.instance import DEFAULT_COST_MODEL, Instance, load_instance


def number(least: float, *, exclusive: bool = False, what: str = "number") -> Any:
    """An argparse type: a finite number at least (or above) ``least``."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < least or (exclusive and value == least):
            raise argparse.ArgumentTypeError(f"{text!r}: must be a {what} {'>' if exclusive else '>='} {least:g}")
        return value

    return parse


def integer(least: int) -> Any:
    """An argparse type: an integer of at least ``least``."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"{text!r}: must be an integer >= {least}")
        return value

    return parse


def add_common(parser: argparse.ArgumentParser) -> None:
    """--json, --time-limit, --workers, --seed, --quiet."""
    parser.add_argument("--json", metavar="FILE", help="write the result as JSON; - for stdout")
    parser.add_argument("--time-limit", type=number(0, exclusive=True), metavar="S", help="seconds to spend at most")
    parser.add_argument("--workers", type=integer(1), default=os.cpu_count() or 1, metavar="K", help="threads")
    parser.add_argument("--seed", type=integer(0), default=0, metavar="N", help="random seed (default 0)")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")


def add_workload(parser: argparse.ArgumentParser) -> None:
    """An instance file, a shipped name, or --trace with its options."""
    parser.add_argument("instance", nargs="?", metavar="INSTANCE", help="instance file (YAML or JSON) or shipped name")
    parser.add_argument("--trace", metavar="FILE", help="trace file or shipped excerpt, instead of INSTANCE")
    group = parser.add_argument_group("workload", "what becomes of the requests and limits that were read")
    group.add_argument("--first", type=integer(1), metavar="N", help="only the first N requests")
    group.add_argument("--window", metavar="A:B", help="only arrivals from A to B seconds")
    group.add_argument("--rate-scale", type=number(0, exclusive=True), default=1.0, metavar="X",
                       help="arrivals X times as fast")  # fmt: skip
    group.add_argument("--output-scale", type=number(0, exclusive=True), default=1.0, metavar="X",
                       help="outputs X times as long")  # fmt: skip
    group.add_argument("--max-tokens", type=integer(2), metavar="T", help="trim prompts so that I + O <= T")
    group.add_argument("--arrivals", metavar="PROCESS", help="draw other arrivals: constant:RATE, poisson:RATE or "
                       "gamma:RATE:CV, in requests per second")  # fmt: skip
    group.add_argument("--offline", action="store_true", help="all requests arrive at time 0")
    group.add_argument("--kv-capacity", type=integer(1), metavar="M", help="KV tokens that fit in memory")
    group.add_argument("--kv-scale", type=number(0, exclusive=True), default=1.0, metavar="X", help="X times as many")
    group.add_argument(
        "--token-budget", type=integer(1), metavar="C", help="tokens per batch (a trace's default: 4096)"
    )
    group.add_argument("--cost-model", default=None, metavar="NAME", help=f"default {DEFAULT_COST_MODEL}")
    group.add_argument("--drop-empty", action="store_true", help="leave out a trace's rows without tokens")
    parser.add_argument("--drop-infeasible", action="store_true", help="leave out requests that can never fit in M")


INDENTED_BATCHES = 10_000


def write_json(data: dict[str, Any], target: str | None) -> None:
    """Write JSON atomically to a file, or to stdout for "-"; nothing half-written is left behind.

    Indented, unless it holds a long schedule: indenting millions of numbers takes a minute.
    """
    if target is None:
        return
    schedule = data.get("schedule")
    long = isinstance(schedule, dict) and len(schedule.get("batches", ())) > INDENTED_BATCHES
    text = json.dumps(data, indent=None if long else 1, allow_nan=False) + "\n"
    if target == "-":
        sys.stdout.write(text)
        return
    write_text(text, Path(target))


def write_text(text: str, path: Path) -> None:
    """Replace a file in one step; see `write_bytes`."""
    write_bytes(text.encode("utf-8"), path)


def write_bytes(content: bytes, path: Path) -> None:
    """Replace a file in one step, also behind a link; a device or a pipe is written to.

    Raises
    ------
    InputError
        If it cannot be written.
    """
    try:
        path = path.resolve() if path.is_symlink() else path
        if path.exists() and not path.is_file():
            path.write_bytes(content)
            return
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".servebound-")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from None


def require_writable(target: str | Path | None) -> None:
    """Refuse an output file that cannot be written, before any work is done for it.

    Raises
    ------
    InputError
        If its folder is missing or closed, or it is a folder itself.
    """
    if target is None or str(target) == "-":
        return
    path = Path(target)
    try:
        if path.is_dir():
            rule = "is a folder, not a file"
        elif not path.parent.is_dir():
            rule = f"there is no folder {str(path.parent)!r}"
        elif not os.access(path if path.exists() and not path.is_file() else path.parent, os.W_OK):
            rule = "permission denied"
        else:
            return
    except OSError as error:
        rule = str(error.strerror)
    raise InputError(f"cannot be written: {rule}", source=str(path))


def require_folder(target: str | Path | None) -> None:
    """Refuse a folder for figures that cannot be made or written into, before any work is done for it.

    Raises
    ------
    InputError
        If it is a file, or it or the nearest folder above it is closed.
    """
    if target is None:
        return
    path = Path(target)
    try:
        nearest = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
        if not nearest.is_dir():
            rule = f"{str(nearest)!r} is not a folder"
        elif not os.access(nearest, os.W_OK | os.X_OK):
            rule = f"permission denied for {str(nearest)!r}"
        else:
            return
    except OSError as error:
        rule = str(error.strerror)
    raise InputError(f"cannot be written: {rule}", source=str(path))


def require_cost_model(instance: Instance, source: str | None) -> Instance:
    """The instance, once its cost model is known to be there.

    Raises
    ------
    InputError
        Naming the instance's file where the name in it is wrong.
    """
    try:
        load_cost_model(instance.cost_model)
    except InputError as error:
        if error.source is not None:
            raise
        raise InputError(error.rule, source=source, field=error.field, value=instance.cost_model) from None
    return instance


def load_workload(args: argparse.Namespace) -> Instance:
    """The instance the arguments describe.

    Raises
    ------
    InputError
        If there is none, more than one, or it is broken.
    """
    if (args.instance is None) == (args.trace is None):
        raise InputError("give an INSTANCE (file or shipped name) or --trace FILE, one of the two")
    from sim.workload import TraceOptions, instance_from_trace, shape_instance

    arrivals = None
    if args.arrivals is not None:
        from sim.generate import parse_arrivals

        arrivals = parse_arrivals(args.arrivals, "--arrivals")
    seed = getattr(args, "seed", 0)
    options = TraceOptions(
        args.kv_capacity, args.token_budget, args.cost_model, args.first, _window(args.window), args.rate_scale,
        args.output_scale, args.max_tokens, args.offline, args.kv_scale, arrivals, seed, args.drop_empty,
    )  # fmt: skip
    if args.trace is not None:
        instance = instance_from_trace(args.trace, options)
    else:
        instance = load_instance(args.instance)
        if options != TraceOptions(seed=seed):
            instance = shape_instance(instance, options, args.instance)
    return require_cost_model(instance, "--cost-model" if args.cost_model else args.instance)


def _window(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    try:
        start, end = (float(part) for part in text.split(":"))
    except ValueError:
        start, end = 1.0, 0.0
    if not 0 <= start < end <= 4.6e9:
        raise InputError("must be A:B in seconds with 0 <= A < B <= 4.6e9", field="--window", value=text)
    return start, end


def require_feasible(instance: Instance, args: argparse.Namespace) -> Instance:
    """The instance if every request can fit; without those that cannot, said on stderr, if --drop-infeasible is given.

    Raises
    ------
    InputError
        Naming the first request that can never fit, or if none is left.
    """
    source = args.instance or args.trace
    if not args.drop_infeasible:
        instance.require_feasible(source)
    return feasible_part(instance, source)


def feasible_part(instance: Instance, source: str) -> Instance:
    """The instance without requests that can never fit, said on stderr if there are any.

    Ids stay those of the whole workload, so that a schedule of the rest can be read beside it.

    Raises
    ------
    InputError
        If none is left.
    """
    infeasible = set(instance.infeasible())
    if not infeasible:
        return instance
    kept = tuple(replace(r, id=label) for i, (r, label) in enumerate(zip(instance.requests, instance.ids, strict=True))
                 if i not in infeasible)  # fmt: skip
    if not kept:
        raise InputError("no request can ever fit in kv_capacity_tokens", source=source, field="requests")
    print(f"servebound: {source}: left out {len(infeasible)} of {len(instance.requests)} requests that can never fit",
          file=sys.stderr)  # fmt: skip
    return instance.replace(requests=kept)
