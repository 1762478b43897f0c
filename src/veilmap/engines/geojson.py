"""Points in GeoJSON files. The geometry gives the first two axes, properties give the other axes and the unit."""

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
from veilmap.geofiles import GEOJSON_LINES_EXTENSIONS
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
    damaged_message: str

    @property
    def id_type(self) -> Any:
        return None if self.unit is None else pa.large_string()

    def shares(self) -> Iterator[Share]:
        by_line = self.path.lower().endswith(GEOJSON_LINES_EXTENSIONS)
        parse: Parse = _parse_lines if by_line else parse_members
        with guard(lambda: open(self.path, "rb"), self.damaged_message) as file:
            blocks = line_blocks(file) if by_line else Collection(file).blocks()
            bytes_before = 0
            for texts in guard_each(blocks, self.damaged_message):
                yield (file.tell() - bytes_before) / self.size, partial(self._read, parse, texts)
                bytes_before = file.tell()

    def _read(self, parse: Parse, texts: list[bytes]) -> Iterator[Piece]:
        records = [record if isinstance(record, dict) else {} for record in parse(texts)]
        properties = [value if isinstance(value := record.get("properties"), dict) else {} for record in records]
        columns = [_to_floats(row.get(name) for row in properties) for name in self.properties]
        if self.geometry:
            points = [_point(record.get("geometry")) for record in records]
            columns = [_to_floats(point[axis] for point in points) for axis in (0, 1)] + columns
        ids = None
        if self.unit is not None:
            ids = pa.array([_id(row.get(self.unit)) for row in properties], pa.large_string())
        yield Piece(columns, ids)


def open_geojson(path: str, domain: Domain, unit: str | None, input_name: str, damaged_message: str) -> GeoJsonSource:
    with open(path, "rb") as file:
        crs = LON_LAT if path.lower().endswith(GEOJSON_LINES_EXTENSIONS) else _crs_of(file, input_name)
        size = file.seek(0, 2)
    geometry = domain.dimensions >= 2
    if geometry:
        must_have_crs(Geometry("geometry", crs, ()), domain, input_name)
    return GeoJsonSource(path, size, geometry, domain.names[2:] if geometry else domain.names, unit, damaged_message)


def _crs_of(file: IO[bytes], input_name: str) -> str | None:
    """Read the whole file, check that it is a FeatureCollection, and return its reference system."""
    collection, reason = Collection(file), ""
    try:
        for _ in collection.blocks():
            pass
    except NotACollection as error:
        reason = str(error)
    if reason:
        raise UnreadableInput(
            f"{input_name} is not a GeoJSON FeatureCollection ({reason}). Export it again; if it has one feature per "
            "line, rename it to .geojsonl."
        )
    declared = collection.members.get("crs")
    if declared is None:
        return LON_LAT
    properties = declared.get("properties") if isinstance(declared, dict) else None
    return crs_label(properties.get("name")) if isinstance(properties, dict) else None


def _parse_lines(texts: list[bytes]) -> list[Any]:
    return [parse_record(text) for text in texts]


def _point(geometry: Any) -> tuple[Any, Any]:
    """Return x and y of a point, None for any other value."""
    if isinstance(geometry, dict) and geometry.get("type") == "Point":
        position = geometry.get("coordinates")
        if isinstance(position, list) and len(position) >= 2:
            return position[0], position[1]
    return None, None


def _to_floats(values: Iterator[Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([number_of(value) for value in values], np.float64)


def _id(value: Any) -> str | None:
    """Return text unchanged and a number as it is written, None for any other value."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode() or None
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None
