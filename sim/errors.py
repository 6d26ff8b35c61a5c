"""The one error class for everything a user can get wrong."""

from __future__ import annotations

_MISSING = object()
_LONGEST_VALUE = 60
_LONGEST_SOURCE = 250


class InputError(ValueError):
    """Bad input: one line that names the file, the field, the value and the rule it breaks.

    Parameters
    ----------
    rule
        What must hold, as a phrase ("must be an integer >= 1").
    source
        The file the input came from, if any.
    field
        Dotted path of the field within the file ("requests[2].input_tokens").
    value
        The offending value; shortened when long.

    Examples
    --------
    >>> str(InputError("must be an integer >= 1", source="a.yaml", field="token_budget", value=0))
    'a.yaml: token_budget = 0: must be an integer >= 1'
    """

    def __init__(
        self, rule: str, *, source: str | None = None, field: str | None = None, value: object = _MISSING
    ) -> None:
        self.rule, self.source, self.field, self.value = rule, source, field, value
        place = field or ""
        if value is not _MISSING:
            shown = repr(value)
            if len(shown) > _LONGEST_VALUE:
                shown = shown[: _LONGEST_VALUE - 3] + "..."
            place = f"{place} = {shown}" if place else shown
        if source is not None and len(source) > _LONGEST_SOURCE:
            source = source[: _LONGEST_SOURCE - 3] + "..."
        parts = [part for part in (source, place) if part]
        super().__init__(" ".join(": ".join([*parts, rule]).split()))


class StoppedError(Exception):
    """A run was given up before its end, because the caller said so."""
