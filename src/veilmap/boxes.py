"""The boxes that people ask, checked and put in their place."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from veilmap.arrays import Floats
from veilmap.domain import Domain
from veilmap.errors import BadInput
from veilmap.kernels import box_walks as kernel


def checked_boxes(boxes: ArrayLike, domain: Domain) -> Floats:
    """Boxes as fractions of the domain: lo of each axis, then hi of each. What lies outside is cut off."""
    axes = domain.dimensions
    try:
        array = np.asarray(boxes, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise BadInput(f"Boxes must be numbers, {2 * axes} a row: {_order(domain)}.") from None
    array = array[None, :] if array.ndim == 1 else array
    if array.ndim != 2 or array.shape[1] != 2 * axes:
        raise BadInput(f"A box of this domain is {2 * axes} numbers, {_order(domain)}; got shape {array.shape}.")
    out = np.empty(array.shape)
    bad = kernel.place_boxes(array, domain.lo, domain.hi, domain.side, out)
    if bad >= 0:
        fault = "has a NaN" if np.isnan(array[bad]).any() else "is inverted"
        raise BadInput(f"Box {bad} {fault}, {array[bad].tolist()}: give {_order(domain)}.")
    return out


def _order(domain: Domain) -> str:
    return ", ".join([f"low {n}" for n in domain.names] + [f"high {n}" for n in domain.names])
