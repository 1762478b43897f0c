"""Points in GeoPackages, Shapefiles and whatever else GDAL reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from veilmap.domain import Domain
from veilmap.engines.batches import Share
from veilmap.engines.columns import Layout, lay_out
from veilmap.engines.geometry import crs_label, find_geometry
from veilmap.engines.guard import guard, guard_each, no_warnings
from veilmap.errors import UnreadableInput, need


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
        layer = _pyogrio(self.path).open_arrow(
            self.path,
            layer=self.layer,
            columns=self.layout.needed,
            read_geometry=self.read_geometry,
        )
        _, stream = guard(layer.__enter__, self.damaged)
        try:
            batches = guard(lambda: pa.RecordBatchReader.from_stream(stream), self.damaged)
            for batch in guard_each(batches, self.damaged):
                guard(partial(batch.validate, full=True), self.damaged)  # see _pyogrio
                yield 0.0, self.layout.batch(batch)
            yield 1.0, lambda: ()
        finally:
            layer.__exit__(None, None, None)


def open_layer(path: str, domain: Domain, unit: str | None, where: str, damaged: str) -> LayerSource:
    if unit is not None and not path.lower().endswith((".gpkg", ".shp", ".fgb")):  # which say what type a column has
        raise UnreadableInput(f"{where} declares no types, as ids need: save it as GeoPackage or Parquet for units.")
    with no_warnings():
        layer = _only_layer(path, where, damaged)
        schema, about = guard(lambda: _describe(path, layer), damaged)
    geometry = find_geometry(schema)
    if geometry:
        declared = about["geometry_type"]
        kinds = () if declared in (None, "Unknown") else (declared,)
        geometry = replace(geometry, crs=crs_label(about["crs"]), kinds=kinds)
    layout = lay_out(domain, where, schema, geometry, unit)
    return LayerSource(path, layer, layout, geometry is not None and geometry.column in layout.needed, damaged)


def _describe(path: str, layer: str) -> tuple[pa.Schema, dict[str, Any]]:
    with _pyogrio(path).open_arrow(path, layer=layer) as (about, stream):
        return pa.RecordBatchReader.from_stream(stream).schema, about


def _only_layer(path: str, where: str, damaged: str) -> str:
    """The only layer, or the only one of points."""
    layers = guard(lambda: _pyogrio(path).list_layers(path).tolist(), damaged)
    points = [name for name, kind in layers if kind and kind.removeprefix("2.5D ").split()[0] == "Point"]
    names = points if len(points) == 1 else [name for name, _ in layers]
    if len(names) != 1:
        raise UnreadableInput(
            f"{where} must have one layer, or only one of points, got {', '.join(names) or 'none'}: "
            "save the layer you mean in a file of its own."
        )
    return str(names[0])


def _pyogrio(path: str) -> Any:
    package = need("pyogrio", "geo", f"Reading a {os.path.splitext(path)[1]} file")
    package.set_gdal_config_options(
        {
            "CPL_LOG": os.devnull,  # on worker threads GDAL's warnings, which quote cells, would go to stderr
            "OGR_FLATGEOBUF_STREAM_BASE_IMPL": True,  # the quick way mixes up rows after a null geometry (GDAL 3.12.4)
        }
    )
    return package
