"""Small text files that people write: read whole or refused in one line."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any, NoReturn

import yaml

from sim.errors import InputError

MAX_FILE_BYTES = 64 * 2**20


def exists(file: Path) -> bool:
    """Whether there is something of this name; a name that no file can have is not there."""
    try:
        return file.exists()
    except (OSError, ValueError):
        return False


def read_text(path: Path) -> str:
    """Read a small text file, refusing folders, huge files and what is not UTF-8."""
    try:
        if path.is_dir():
            raise InputError("is a folder, not a file", source=str(path))
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise InputError(f"file of {size:,} bytes; at most {MAX_FILE_BYTES:,} (use --trace for long workloads)",
                             source=str(path))  # fmt: skip
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", source=str(path)) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path)) from None


class _StrictLoader(yaml.CSafeLoader):
    """YAML loader that refuses duplicate keys."""


def _strict_mapping(loader: _StrictLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[str] = set()
    for key_node, _ in node.value:
        key = str(key_node.value)
        if key in seen:
            raise InputError("key given twice", field=key)
        seen.add(key)
    return dict(yaml.CSafeLoader.construct_mapping(loader, node, deep=True))


_StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _strict_mapping)


def parse_text(text: str, source: str) -> Any:
    """Parse YAML or JSON text, refusing duplicate keys, NaN and syntax errors in one line."""
    try:
        named = Path(source).suffix == ".json"
        if named or text.lstrip()[:1] == "{":  # YAML takes minutes for a long schedule
            with contextlib.nullcontext() if named else contextlib.suppress(json.JSONDecodeError):
                return json.loads(text, object_pairs_hook=unique_pairs, parse_constant=_no_constant)
        return yaml.load(text, Loader=_StrictLoader)
    except InputError as error:
        raise InputError(error.rule, source=source, field=error.field) from None
    except json.JSONDecodeError as error:
        raise InputError(f"is not JSON: {error.msg} at line {error.lineno}", source=source) from None
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise InputError(f"is not YAML: {getattr(error, 'problem', None) or 'unreadable'}{where}",
                         source=source) from None  # fmt: skip
    except ValueError as error:
        raise InputError(f"cannot be read: {error}", source=source) from None


def unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Hook for `json.loads` that refuses duplicate keys."""
    data: dict[str, Any] = {}
    for key, value in pairs:
        if key in data:
            raise InputError("key given twice", field=key)
        data[key] = value
    return data


def _no_constant(text: str) -> NoReturn:
    raise InputError(f"{text} is not a number", field="JSON value")
