"""The domain: a public box with named axes, and the grid of integer cells on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from veilmap.arrays import Floats, Ints
from veilmap.errors import BadInput

MAX_AXES = 8
MAX_BITS = 31  # per axis: a cell number fits a signed 32-bit integer
KEY_BITS = 62  # over all axes: the number of a cell in the grid fits a signed 64-bit integer


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis: the name of its column and its public range, both ends included."""

    name: str
    lo: float
    hi: float


@dataclass(frozen=True, slots=True, init=False)
class Domain:
    """A public box with named axes, divided into ``2**bits`` cells per axis.

    Choose the box from what is publicly known, such as the borders of a country. Do not compute it from the points:
    that would publish the most extreme ones. Points outside the box are dropped silently.

    Parameters
    ----------
    axes
        The range ``(low, high)`` of each axis, by the name of its column. A domain has 1 to 8 axes.
    crs
        The coordinate system of the first two axes, like ``"EPSG:4326"``. It is a label: coordinates are not changed.
    bits
        Resolution: each axis is divided into ``2**bits`` cells. By default, as many as 64-bit numbers allow.

    Examples
    --------
    >>> domain = vm.Domain({"lon": (-124.82, -103.00), "lat": (31.33, 49.00)}, crs="EPSG:4326")
    >>> domain.names
    ('lon', 'lat')
    >>> vm.Domain.parse("lon=-124.82:-103.00,lat=31.33:49.00", crs="EPSG:4326") == domain
    True
    """

    axes: tuple[Axis, ...]
    crs: str | None
    bits: int

    def __init__(
        self, axes: Mapping[str, tuple[float, float]], *, crs: str | None = None, bits: int | None = None
    ) -> None:
        if not isinstance(axes, Mapping):
            raise BadInput(
                f"A domain maps axis names to ranges, like {{'lon': (-125, -103)}}, got {type(axes).__name__}."
            )
        if not 1 <= len(axes) <= MAX_AXES:
            raise BadInput(f"A domain has 1 to {MAX_AXES} axes, got {len(axes)}. Leave some out.")
        if not (crs is None or (isinstance(crs, str) and crs.isprintable())):
            raise BadInput(f"The coordinate system must be a text like EPSG:4326, got {crs!r}.")
        checked = tuple(_axis(name, bounds) for name, bounds in axes.items())
        finest = min(MAX_BITS, KEY_BITS // len(checked), *(_float_bits(a) for a in checked))
        if bits is not None and not (type(bits) is int and 1 <= bits <= finest):
            raise BadInput(f"A domain with these axes takes 1 to {finest} bits per axis, got {bits!r}.")
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
        """Number of cells per axis."""
        return 1 << self.bits

    @property
    def lo(self) -> Floats:
        return np.array([axis.lo for axis in self.axes])

    @property
    def hi(self) -> Floats:
        return np.array([axis.hi for axis in self.axes])

    def scale(self, axis: int) -> float:
        """Return the number of cells per unit of an axis: ``x`` lies in cell ``floor((x - lo) * scale)``."""
        return self.side / (self.axes[axis].hi - self.axes[axis].lo)

    def of_cells(self) -> Domain:
        """Return the domain whose coordinates are the cell numbers of this one."""
        return Domain(dict.fromkeys(self.names, (0.0, float(self.side))), bits=self.bits)

    def edges(self, cells: Ints, axis: int) -> Floats:
        """Return the coordinate of the lower edge of each cell; for cell ``side``, the upper end of the axis."""
        lo, hi = self.axes[axis].lo, self.axes[axis].hi
        fraction = cells / self.side
        return np.where(cells == self.side, hi, lo + (hi - lo) * fraction)

    def to_json(self) -> dict[str, Any]:
        """Return the domain as it is stored in a release file."""
        return {
            "axes": [{"name": a.name, "lo": a.lo, "hi": a.hi} for a in self.axes],
            "crs": self.crs,
            "bits": self.bits,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Domain:
        """Return the domain that ``to_json`` stored."""
        return cls({a["name"]: (a["lo"], a["hi"]) for a in record["axes"]}, crs=record["crs"], bits=record["bits"])

    @classmethod
    def parse(cls, text: str, crs: str | None = None) -> Domain:
        """Read a domain from text like ``lon=-124.82:-103.00,lat=31.33:49.00``, as on the command line."""
        axes: dict[str, tuple[float, float]] = {}
        for item in text.split(","):
            name, equals, bounds = item.partition("=")
            lo, colon, hi = bounds.partition(":")
            if not (equals and colon and name.strip()):
                raise BadInput(f"Write a domain like lon=-125:-103,lat=31:49: {item!r} is not name=low:high.")
            if name.strip() in axes:
                raise BadInput(f"The domain names the axis {name.strip()!r} twice. Give each axis once.")
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
        raise BadInput(f"The range of axis {name!r} must be finite, got ({lo}, {hi}). Give bounds that you know.")
    if not lo < hi:
        raise BadInput(f"The range of axis {name!r} must run from low to high, got ({lo}, {hi}).")
    axis = Axis(name, lo, hi)
    if _float_bits(axis) < 1:
        raise BadInput(
            f"The range of axis {name!r} is too narrow for 64-bit numbers, got ({lo!r}, {hi!r}). "
            f"Choose another unit or origin."
        )
    return axis


def _float_bits(axis: Axis) -> int:
    """Return how often an axis can be halved so that cell edges remain distinct 64-bit floats."""
    width = axis.hi - axis.lo
    if math.isinf(2.0**MAX_BITS / width):
        return 0
    return math.floor(math.log2(width / (4 * math.ulp(max(abs(axis.lo), abs(axis.hi))))))
