"""Points in GeoPackages, Shapefiles and FlatGeobuf files, which GDAL reads in a separate process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from veilmap.domain import Domain
from veilmap.engines.batches import Share
from veilmap.engines.columns import Layout, lay_out
from veilmap.engines.geometry import crs_label, find_geometry
from veilmap.engines.redaction import guard, guard_each
from veilmap.errors import UnreadableInput
from veilmap.geofiles.gdal_layers import driver_of
from veilmap.geofiles.process import metadata_of, reading


@dataclass(frozen=True, slots=True)
class LayerSource:
    """The layer of points of one file."""

    path: str
    layer: str
    layout: Layout
    read_geometry: bool
    damaged_message: str

    @property
    def id_type(self) -> Any:
        return self.layout.id_type

    def shares(self) -> Iterator[Share]:
        options = {
            "path": self.path,
            "layer": self.layer,
            "columns": self.layout.needed,
            "geometry": self.read_geometry,
        }
        with reading("rows", options, self.damaged_message, [driver_of(self.path)]) as batches:
            for batch in guard_each(batches, self.damaged_message):
                # Columns of different lengths would mix up rows.
                guard(partial(batch.validate, full=True), self.damaged_message)
                yield 0.0, self.layout.batch(batch)
        yield 1.0, lambda: ()


def open_layer(path: str, domain: Domain, unit: str | None, input_name: str, damaged_message: str) -> LayerSource:
    path = os.path.abspath(path)  # GDAL interprets some other names as addresses
    with reading("describe", {"path": path}, damaged_message, [driver_of(path)]) as batches:
        schema = batches.schema
    metadata = metadata_of(schema)
    if len(names := metadata["layers"]) != 1:
        raise UnreadableInput(
            f"{input_name} must have one layer, or only one layer of points, got {', '.join(names) or 'none'}. "
            "Save the layer you mean as a separate file."
        )
    geometry = find_geometry(schema)
    if geometry:
        declared = metadata["geometry_type"]
        kinds = () if declared in (None, "Unknown") else (declared,)
        geometry = replace(geometry, crs=crs_label(metadata["crs"]), kinds=kinds)
    layout = lay_out(domain, input_name, schema, geometry, unit)
    read_geometry = geometry is not None and geometry.column in layout.needed
    return LayerSource(path, names[0], layout, read_geometry, damaged_message)
