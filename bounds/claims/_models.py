"""Which cost models an experiment is repeated under."""

from __future__ import annotations

from bounds.claims import Row
from sim.cost import cost_model_names


def fitted(published: str) -> str:
    """The max-affine fit of the same LLM and GPU."""
    return f"max-affine/{published.rsplit('/', 1)[-1]}"


def beside(published: str) -> list[str]:
    """The linear set and, where it is shipped, the max-affine fit of the same LLM and GPU."""
    return [published, *(name for name in cost_model_names() if name == fitted(published))]


def kind(row: Row) -> str:
    """Kind of cost model of a row: "linear" (published or fitted) or "max-affine"."""
    return str(row["cost_model"]).split("/")[0].removesuffix("-fit")


def setup(row: Row) -> str:
    """LLM and GPU of a row."""
    return str(row["cost_model"]).rsplit("/", 1)[-1]
