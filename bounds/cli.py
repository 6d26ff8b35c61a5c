"""The command line: finds the sub-commands in `bounds.commands` and turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import NoReturn

from sim.errors import InputError
from sim.registry import names

EXIT_DONE, EXIT_NOT_REACHED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130


class _Parser(argparse.ArgumentParser):
    """Usage errors are one line, like every other input error."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def package_version() -> str:
    """Version of the installed distribution, or "unknown" when run from a bare folder."""
    try:
        return version("servebound")
    except PackageNotFoundError:
        return "unknown"


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser; with ``only``, just that sub-command's arguments are declared (the others cost imports)."""
    parser = _Parser(prog="servebound", description="Optimal schedules, certified bounds and faithful simulation "
                     "for LLM inference scheduling.")  # fmt: skip
    parser.add_argument("--version", action="version", version=f"servebound {package_version()}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    for name in names("bounds.commands"):
        word = name.replace("_", "-")
        if only is not None and word != only:
            commands.add_parser(word)
            continue
        module = importlib.import_module(f"bounds.commands.{name}")
        text = (module.__doc__ or "").strip()
        sub = commands.add_parser(word, help=text.splitlines()[0].rstrip("."), description=text,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
        module.configure(sub)
        sub.set_defaults(run=module.run)
    return parser


def _open_streams() -> None:
    """Lead closed streams nowhere: files opened later would get their numbers, and with them what is printed."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns
    -------
    0 done; 1 what was asked for was not reached; 2 bad usage or input; 130 interrupted.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    answers = sys.stdout is not None
    _open_streams()
    first = words[0] if words and not words[0].startswith("-") else None
    known = {name.replace("_", "-") for name in names("bounds.commands")}
    try:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        stray = next((word for word in words if word.startswith("--") and word.endswith("=--")), None)
        if stray is not None:  # argparse would take it for an empty list
            raise InputError("needs a value", field=stray[:-3], value="--")
        args = build_parser(first if first in known else None).parse_args(words)
        from bounds.cli_options import require_folder, require_writable

        if args.__dict__.get("json") == "-" and not answers:
            raise InputError("standard output is closed", field="--json", value="-")
        require_writable(getattr(args, "json", None))
        require_folder(getattr(args, "plots", None))
        return int(args.run(args))
    except InputError as error:
        print(f"servebound: {error}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        print("servebound: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_DONE
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else EXIT_USAGE


if __name__ == "__main__":
    sys.exit(main())
