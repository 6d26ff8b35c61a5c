"""Which cost models an experiment is repeated under."""

from __future__ import annotations

from sim.cost import cost_model_names


def beside(published: str) -> list[str]:
    """The published linear set and, where it is shipped, the max-affine fit of the same LLM and GPU."""
    fitted = published.replace("linear/", "max-affine/")
    return [published, *(name for name in cost_model_names() if name == fitted)]
