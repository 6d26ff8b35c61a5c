"""Plain text tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence


def format_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns under a header: text to the left, numbers to the right, None as "-"; floats with three decimals.

    >>> print(format_table(["name", "ms"], [["a", 1.5], ["b", None]]))
    name     ms
    a     1.500
    b         -
    """
    cells = [list(header), *([_text(value) for value in row] for row in rows)]
    right = [
        all(isinstance(row[c], int | float) or row[c] is None for row in rows) and bool(rows)
        for c in range(len(header))
    ]
    widths = [max(len(line[c]) for line in cells) for c in range(len(header))]
    lines = [
        "  ".join(cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(line, widths, right, strict=True))
        for line in cells
    ]
    return "\n".join(line.rstrip() for line in lines)


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.3f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)
