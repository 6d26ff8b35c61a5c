"""Fit the largest of a few affine functions with coefficients >= 0 to measured times, by relative error.

The sum of squared relative errors is not convex in the pieces, so it is descended from several starts: rows are dealt
to pieces, all coefficients are a non-negative least-squares fit given who owns which row (`scipy.optimize.nnls`), rows
move to the piece that is largest for them (Magnani and Boyd, "Convex piecewise-linear fitting", 2009), and each start
is polished by bounded least squares on the maximum itself (`scipy.optimize.least_squares`). Coefficients >= 0 make the
fitted time convex and non-decreasing in every feature.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares, nnls

Array = NDArray[np.float64]

_ROUNDS = 30
_STARTS = 12
_FOLDS = 4


@dataclass(frozen=True, slots=True)
class Data:
    """Rows to fit: time = largest piece of ``features`` + linear in ``shared`` + ``offset``.

    Parameters
    ----------
    features
        Shape (n, f), >= 0; what the pieces depend on.
    times
        Shape (n,), > 0.
    shared
        Shape (n, s), >= 0; charged on top of whichever piece is largest.
    offset
        Shape (n,), >= 0; part of the time that is accounted for elsewhere.
    """

    features: Array
    times: Array
    shared: Array
    offset: Array

    def __post_init__(self) -> None:
        if len(self.times) == 0 or self.times.min() <= 0:
            raise ValueError("need rows with times > 0")
        if min(self.features.min(), self.shared.min(initial=0), self.offset.min()) < 0:
            raise ValueError("need features, shared features and offsets >= 0")

    def rows(self, keep: NDArray[np.bool_]) -> Data:
        """Some of the rows."""
        return Data(self.features[keep], self.times[keep], self.shared[keep], self.offset[keep])


def data(features: Array, times: Array, shared: Array | None = None, offset: Array | None = None) -> Data:
    """Rows with nothing shared and no offset unless given."""
    count = len(times)
    shared = np.zeros((count, 0)) if shared is None else shared
    return Data(features, times, shared, np.zeros(count) if offset is None else offset)


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted max-affine function.

    Parameters
    ----------
    pieces
        Coefficients, shape (pieces, f), all >= 0.
    shared
        Coefficients, shape (s,), all >= 0.
    mean_square
        Mean squared relative error on the rows it was fitted to.
    """

    pieces: Array
    shared: Array
    mean_square: float

    def predict(self, rows: Data) -> Array:
        """Time of every row."""
        total: Array = (rows.features @ self.pieces.T).max(axis=1) + rows.shared @ self.shared + rows.offset
        return total

    def relative_errors(self, rows: Data) -> Array:
        """|fitted - measured| / measured of every row."""
        errors: Array = np.abs(self.predict(rows) - rows.times) / rows.times
        return errors


def fit_max_affine(rows: Data, pieces: int, rng: np.random.Generator) -> Fit:
    """Fit at most so many pieces.

    Parameters
    ----------
    rows
        What was measured.
    pieces
        1 for a linear fit.
    rng
        For the starts; the first is always the same.

    Examples
    --------
    >>> tokens = np.array([1.0, 2, 5, 10, 20, 40, 80])
    >>> rows = data(np.column_stack([np.ones_like(tokens), tokens]), np.maximum(3.0, 0.5 * tokens))
    >>> bool(fit_max_affine(rows, 2, np.random.default_rng(0)).relative_errors(rows).max() < 1e-6)
    True
    """
    scale, shared_scale = _scale(rows.features), _scale(rows.shared)
    scaled = _Scaled(rows.features / scale / rows.times[:, None], rows.shared / shared_scale / rows.times[:, None],
                     1 - rows.offset / rows.times)  # fmt: skip
    best = _polish(scaled, *_alternate(scaled, np.zeros(len(rows.times), dtype=np.intp), 1))
    for count in range(2, pieces + 1):
        # A fit with fewer pieces is one with this many, so more pieces are never worse.
        best = (best[0], np.vstack([best[1], np.zeros_like(scale)]), best[2])
        for start in range(_STARTS):
            owner = _deal(rows.features / scale, count, rng, first=start == 0)
            found = _polish(scaled, *_alternate(scaled, owner, count))
            if found[0] < best[0] - 1e-12:
                best = found
    return Fit(best[1] / scale, best[2] / shared_scale, best[0])


def choose_pieces(rows: Data, most: int, rng: np.random.Generator) -> tuple[int, list[float]]:
    """Number of pieces by cross-validation: the fewest within one standard error of the best.

    Parameters
    ----------
    rows
        In an order in which neighbours are alike (folds take every fourth row).
    most
        Largest number tried.
    rng
        For the fits.

    Returns
    -------
    The number, and the cross-validated mean relative error of 1 to ``most`` pieces.
    """
    fold = np.arange(len(rows.times)) % _FOLDS
    errors = []
    for pieces in range(1, most + 1):
        error = np.empty(len(rows.times))
        for held in range(_FOLDS):
            fit = fit_max_affine(rows.rows(fold != held), pieces, rng)
            error[fold == held] = fit.relative_errors(rows.rows(fold == held))
        errors.append(error)
    means = [float(error.mean()) for error in errors]
    best = int(np.argmin(means))
    # Standard error of the difference to the best, so that rows that are hard for all do not widen it.
    for pieces, error in enumerate(errors[: best + 1], start=1):
        difference = error - errors[best]
        by_fold = [difference[fold == held].mean() for held in range(_FOLDS)]
        if difference.mean() <= np.std(by_fold, ddof=1) / np.sqrt(_FOLDS):
            return pieces, means
    raise AssertionError("the best number is within any distance of itself")


@dataclass(frozen=True, slots=True)
class _Scaled:
    """Rows divided by their time, columns by their largest value; the fit aims at ``target``."""

    features: Array
    shared: Array
    target: Array


def _scale(columns: Array) -> Array:
    scale: Array = columns.max(axis=0, initial=0.0)
    scale[scale == 0] = 1.0
    return scale


def _deal(scaled: Array, pieces: int, rng: np.random.Generator, *, first: bool) -> NDArray[np.intp]:
    """Deal rows to pieces: sorted along a direction of log features and cut at random places."""
    logs = np.log(scaled + 1e-9)
    direction = np.ones(logs.shape[1]) if first else rng.random(logs.shape[1])
    order = np.argsort(logs @ direction, kind="stable")
    count = len(order)
    cuts = np.arange(1, pieces) * count // pieces if first else np.sort(rng.integers(0, count + 1, pieces - 1))
    owner = np.empty(count, dtype=np.intp)
    for piece, rows in enumerate(np.split(order, cuts)):
        owner[rows] = piece
    return owner


def _alternate(scaled: _Scaled, owner: NDArray[np.intp], pieces: int) -> tuple[Array, Array]:
    count, width = scaled.features.shape
    numbers = np.arange(count)
    found, shared = np.zeros((pieces, width)), np.zeros(scaled.shared.shape[1])
    for _ in range(_ROUNDS):
        blocks = np.zeros((count, pieces, width))
        blocks[numbers, owner] = scaled.features
        flat = nnls(np.hstack([blocks.reshape(count, -1), scaled.shared]), scaled.target)[0]
        found, shared = flat[: pieces * width].reshape(pieces, width), flat[pieces * width :]
        largest = (scaled.features @ found.T).argmax(axis=1)
        if (largest == owner).all():
            break
        owner = largest
    return found, shared


def _polish(scaled: _Scaled, pieces: Array, shared: Array) -> tuple[float, Array, Array]:
    """Bounded least squares on the maximum; the start itself if that is no better."""
    numbers, shape, cut = np.arange(len(scaled.target)), pieces.shape, pieces.size

    def residuals(flat: Array) -> Array:
        values = (scaled.features @ flat[:cut].reshape(shape).T).max(axis=1) + scaled.shared @ flat[cut:]
        difference: Array = values - scaled.target
        return difference

    def jacobian(flat: Array) -> Array:
        active = (scaled.features @ flat[:cut].reshape(shape).T).argmax(axis=1)
        slopes = np.zeros((len(numbers), *shape))
        slopes[numbers, active] = scaled.features
        return np.hstack([slopes.reshape(len(numbers), -1), scaled.shared])

    start = np.concatenate([pieces.ravel(), shared])
    before = float(residuals(start) @ residuals(start))
    inside = np.maximum(start, 1e-12)
    result = least_squares(residuals, inside, jacobian, bounds=(0, np.inf), x_scale=np.maximum(inside, 1e-3),
                           max_nfev=200)  # fmt: skip
    if before <= 2 * result.cost:
        return before / len(numbers), pieces, shared
    # The optimiser stays strictly inside its bounds; what it left at the border is zero.
    flat = np.where(result.x < 1e-9, 0.0, result.x)
    return 2 * float(result.cost) / len(numbers), flat[:cut].reshape(shape), flat[cut:]
