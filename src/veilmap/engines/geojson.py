"""Points in GeoJSON files. The geometry gives the first two axes, properties give the others and the unit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

import numpy as np
import pyarrow as pa

from veilmap.domain import Domain
from veilmap.engines.batches import Piece, Share
from veilmap.engines.geometry import LON_LAT, Geometry, crs_label, must_have_crs, number_of
from veilmap.engines.redaction import guard, guard_each
from veilmap.errors import UnreadableInput
from veilmap.geofiles import LINES
from veilmap.geofiles.geojson import Collection, NotACollection, line_blocks, parse_members, parse_record

Parse = Callable[[list[bytes]], list[Any]]


@dataclass(frozen=True, slots=True)
class GeoJsonSource:
    """One file, read record by record."""

    path: str
    size: int
    geometry: bool
    properties: tuple[str, ...]
    unit: str | None
    damaged: str

    @property
    def id_type(self) -> Any:
        return None if self.unit is None else pa.large_string()

    def shares(self) -> Iterator[Share]:
        by_line = self.path.lower().endswith(LINES)
        parse: Parse = _parse_lines if by_line else parse_members
        with guard(lambda: open(self.path, "rb"), self.damaged) as file:
            blocks = line_blocks(file) if by_line else Collection(file).blocks()
            seen = 0
            for texts in guard_each(blocks, self.damaged):
                yield (file.tell() - seen) / self.size, partial(self._read, parse, texts)
                seen = file.tell()

    def _read(self, parse: Parse, texts: list[bytes]) -> Iterator[Piece]:
        records = [record if isinstance(record, dict) else {} for record in parse(texts)]
        said = [found if isinstance(found := record.get("properties"), dict) else {} for record in records]
        columns = [_numbers(row.get(name) for row in said) for name in self.properties]
        if self.geometry:
            places = [_place(record.get("geometry")) for record in records]
            columns = [_numbers(place[axis] for place in places) for axis in (0, 1)] + columns
        ids = None if self.unit is None else pa.array([_id(row.get(self.unit)) for row in said], pa.large_string())
        yield Piece(columns, ids)


def open_geojson(path: str, domain: Domain, unit: str | None, where: str, damaged: str) -> GeoJsonSource:
    with open(path, "rb") as file:
        crs = LON_LAT if path.lower().endswith(LINES) else _crs_of(file, where)
        size = file.seek(0, 2)
    geometry = domain.dimensions >= 2
    if geometry:
        must_have_crs(Geometry("geometry", crs, ()), domain, where)
    return GeoJsonSource(path, size, geometry, domain.names[2:] if geometry else domain.names, unit, damaged)


def _crs_of(file: IO[bytes], where: str) -> str | None:
    """The reference system of a collection, once all of it is known to be one."""
    collection, why = Collection(file), ""
    try:
        for _ in collection.blocks():
            pass
    except NotACollection as error:
        why = str(error)
    if why:
        raise UnreadableInput(
            f"{where} is not a GeoJSON FeatureCollection ({why}): export it anew; a file with one feature per line "
            "is named .geojsonl."
        )
    declared = collection.members.get("crs")
    if declared is None:
        return LON_LAT
    about = declared.get("properties") if isinstance(declared, dict) else None
    return crs_label(about.get("name")) if isinstance(about, dict) else None


def _parse_lines(texts: list[bytes]) -> list[Any]:
    return [parse_record(text) for text in texts]


def _place(geometry: Any) -> tuple[Any, Any]:
    """x and y of a point, None for anything else."""
    if isinstance(geometry, dict) and geometry.get("type") == "Point":
        at = geometry.get("coordinates")
        if isinstance(at, list) and len(at) >= 2:
            return at[0], at[1]
    return None, None


def _numbers(values: Iterator[Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([number_of(value) for value in values], np.float64)


def _id(value: Any) -> str | None:
    """Text as it is and numbers as they are written; nothing else is an id."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode() or None
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None
