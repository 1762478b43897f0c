"""The public box that the points live in, and the grid of integer cells laid over it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from veilmap.arrays import Floats, Ints
from veilmap.errors import BadInput

MOST_AXES = 8
MOST_BITS = 31  # an axis never has more cells than 2**31 ...
KEY_BITS = 62  # ... and all axes together never more than fit one signed 64-bit key


@dataclass(frozen=True, slots=True)
class Axis:
    """One coordinate: its column's name and its public range, both ends included."""

    name: str
    lo: float
    hi: float


@dataclass(frozen=True, slots=True, init=False)
class Domain:
    """A public box with named axes, cut into ``2**bits`` cells along each.

    The box is the owner's knowledge of the world, never taken from the points: that would publish
    the extreme ones. Points outside it are dropped without a word.

    Examples
    --------
    >>> Domain({"lon": (-124.82, -103.00), "lat": (31.33, 49.00)}).names
    ('lon', 'lat')
    """

    axes: tuple[Axis, ...]
    crs: str | None
    bits: int

    def __init__(
        self, axes: Mapping[str, tuple[float, float]], *, crs: str | None = None, bits: int | None = None
    ) -> None:
        if not isinstance(axes, Mapping):
            raise BadInput(
                f"A domain maps axis names to ranges, like {{'lon': (-125, -103)}}; got {type(axes).__name__}."
            )
        if not 1 <= len(axes) <= MOST_AXES:
            raise BadInput(f"A domain has 1 to {MOST_AXES} axes, got {len(axes)}: leave some out.")
        if not (crs is None or (isinstance(crs, str) and crs.isprintable())):
            raise BadInput(f"A coordinate system is given as text like EPSG:4326, got {crs!r}.")
        checked = tuple(_axis(name, bounds) for name, bounds in axes.items())
        finest = min(MOST_BITS, KEY_BITS // len(checked), *(_float_bits(a) for a in checked))
        if bits is not None and not (type(bits) is int and 1 <= bits <= finest):
            raise BadInput(f"A domain with these axes takes 1 to {finest} bits an axis, got {bits!r}.")
        object.__setattr__(self, "axes", checked)
        object.__setattr__(self, "crs", crs)
        object.__setattr__(self, "bits", finest if bits is None else bits)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.axes)

    @property
    def dimensions(self) -> int:
        return len(self.axes)

    @property
    def side(self) -> int:
        """Cells along each axis."""
        return 1 << self.bits

    @property
    def lo(self) -> Floats:
        return np.array([axis.lo for axis in self.axes])

    @property
    def hi(self) -> Floats:
        return np.array([axis.hi for axis in self.axes])

    def scale(self, axis: int) -> float:
        """Cells in one unit of an axis: a value ``x`` lies in cell ``floor((x - lo) * scale)``."""
        return self.side / (self.axes[axis].hi - self.axes[axis].lo)

    def of_cells(self) -> Domain:
        """The domain in which the cells of this one are the values."""
        return Domain(dict.fromkeys(self.names, (0.0, float(self.side))), bits=self.bits)

    def edges(self, cells: Ints, axis: int) -> Floats:
        """The coordinate of the lower edge of each cell; cell ``side`` gives the upper end exactly."""
        lo, hi = self.axes[axis].lo, self.axes[axis].hi
        part = cells / self.side
        return np.where(cells == self.side, hi, lo + (hi - lo) * part)

    def to_json(self) -> dict[str, Any]:
        return {
            "axes": [{"name": a.name, "lo": a.lo, "hi": a.hi} for a in self.axes],
            "crs": self.crs,
            "bits": self.bits,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Domain:
        return cls({a["name"]: (a["lo"], a["hi"]) for a in record["axes"]}, crs=record["crs"], bits=record["bits"])

    @classmethod
    def parse(cls, text: str, crs: str | None = None) -> Domain:
        """Read ``lon=-124.82:-103.00,lat=31.33:49.00``, as typed on a command line."""
        axes: dict[str, tuple[float, float]] = {}
        for part in text.split(","):
            name, equals, bounds = part.partition("=")
            lo, colon, hi = bounds.partition(":")
            if not (equals and colon and name.strip()):
                raise BadInput(f"A domain is written like lon=-125:-103,lat=31:49; {part!r} is not name=low:high.")
            if name.strip() in axes:
                raise BadInput(f"The domain names the axis {name.strip()!r} twice: give each axis once.")
            try:
                axes[name.strip()] = (float(lo), float(hi))
            except ValueError:
                raise BadInput(f"The range of axis {name.strip()!r} needs two numbers, got {bounds!r}.") from None
        return cls(axes, crs=crs)

    def __str__(self) -> str:
        return ",".join(f"{a.name}={a.lo!r}:{a.hi!r}" for a in self.axes)


def _axis(name: object, bounds: object) -> Axis:
    if not isinstance(name, str) or not name or not name.isprintable():
        raise BadInput(f"An axis needs a name of one or more printable characters, got {name!r}.")
    try:
        if isinstance(bounds, str):
            raise TypeError
        lo, hi = (float(end) for end in bounds)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise BadInput(f"The range of axis {name!r} needs two numbers (low, high), got {bounds!r}.") from None
    if not (math.isfinite(lo) and math.isfinite(hi) and math.isfinite(hi - lo)):
        raise BadInput(f"The range of axis {name!r} must be finite, got ({lo}, {hi}): give numbers you know.")
    if not lo < hi:
        raise BadInput(f"The range of axis {name!r} must run from low to high, got ({lo}, {hi}).")
    axis = Axis(name, lo, hi)
    if _float_bits(axis) < 1:
        raise BadInput(
            f"The range of axis {name!r} is too narrow, got ({lo!r}, {hi!r}): choose another unit or origin."
        )
    return axis


def _float_bits(axis: Axis) -> int:
    """The finest halving of an axis whose edges are still well apart as 64-bit floats."""
    width = axis.hi - axis.lo
    if math.isinf(2.0**MOST_BITS / width):
        return 0
    return math.floor(math.log2(width / (4 * math.ulp(max(abs(axis.lo), abs(axis.hi))))))
