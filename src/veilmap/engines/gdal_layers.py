"""Points in GeoPackages, Shapefiles and FlatGeobuf files, which GDAL reads in a process of its own."""

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
from veilmap.geofiles.process import about_of, reading


@dataclass(frozen=True, slots=True)
class LayerSource:
    """The layer of points of one file."""

    path: str
    layer: str
    layout: Layout
    read_geometry: bool
    damaged: str

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
        with reading("rows", options, self.damaged, [driver_of(self.path)]) as batches:
            for batch in guard_each(batches, self.damaged):
                guard(partial(batch.validate, full=True), self.damaged)  # columns of different lengths would mix rows
                yield 0.0, self.layout.batch(batch)
        yield 1.0, lambda: ()


def open_layer(path: str, domain: Domain, unit: str | None, where: str, damaged: str) -> LayerSource:
    path = os.path.abspath(path)  # GDAL takes names of other forms for addresses
    with reading("describe", {"path": path}, damaged, [driver_of(path)]) as batches:
        schema = batches.schema
    about = about_of(schema)
    if len(names := about["layers"]) != 1:
        raise UnreadableInput(
            f"{where} must have one layer, or only one of points, got {', '.join(names) or 'none'}: "
            "save the layer you mean in a file of its own."
        )
    geometry = find_geometry(schema)
    if geometry:
        declared = about["geometry_type"]
        kinds = () if declared in (None, "Unknown") else (declared,)
        geometry = replace(geometry, crs=crs_label(about["crs"]), kinds=kinds)
    layout = lay_out(domain, where, schema, geometry, unit)
    return LayerSource(path, names[0], layout, geometry is not None and geometry.column in layout.needed, damaged)
