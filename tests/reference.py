"""Reference values that were found independently of this code, from tests/data."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml

DATA = Path(__file__).parent / "data"


@cache
def reference_values() -> dict[str, Any]:
    """The data file: values with their source and date."""
    values: dict[str, Any] = yaml.safe_load((DATA / "reference_values.yaml").read_text("utf-8"))
    return values
