"""The compiler behind one typed decorator: functions cached on disk that release the interpreter lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compile a function of numbers and arrays when it is first called.

    Inner functions take plain arrays: reading one out of a tuple costs a reference count each time.
    """
    return cast(Function, njit(cache=True, nogil=True, error_model="numpy")(function))
