"""Polygons for GIS programs, and tables for all others."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pyarrow as pa
from pyarrow import csv

from veilmap.errors import BadInput, need
from veilmap.export.leaves import Cells, meaning
from veilmap.files.csv_cells import safe_cell
from veilmap.geography.crs import Ground
from veilmap.releases.release import Release

DRIVERS = {".gpkg": "GPKG", ".fgb": "FlatGeobuf", ".geojson": "GeoJSON"}
OPTIONS = {".geojson": {"COORDINATE_PRECISION": "15"}}  # as they are: a rounded cell would cut others


def write_csv(release: Release, cells: Cells, path: Path, progress: Callable[[float], None]) -> None:
    """Where each cell is, and its numbers."""
    batches = cells.batches(release.privacy.private, False, progress)
    first = next(batches)
    schema = pa.schema([field.with_name(safe_cell(field.name)) for field in first.schema])
    with csv.CSVWriter(path, schema) as writer:
        for batch in chain([first], batches):
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))


def write_vector(release: Release, cells: Cells, path: Path, progress: Callable[[float], None]) -> None:
    """A layer of polygons, with what is promised in its description."""
    pyogrio = need("pyogrio", "geo", f"Writing {path.suffix}")
    batches = cells.batches(release.privacy.private, True, progress)
    first = next(batches)
    geometry = first.schema.field("geometry").with_metadata({"ARROW:extension:name": "geoarrow.wkb"})
    schema = first.schema.set(first.schema.get_field_index("geometry"), geometry)
    rows = pa.RecordBatchReader.from_batches(
        schema, (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in chain([first], batches))
    )
    kind, crs = path.suffix.lower(), Ground(release.domain).crs_name
    options = {"DESCRIPTION": meaning(release), **OPTIONS.get(kind, {})}
    about = {"layer_metadata": {"PRIVACY": release.privacy.statement()}} if kind == ".gpkg" else {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is no coordinate system, where there is none
            pyogrio.write_arrow(
                rows,
                path,
                layer=path.stem,
                driver=DRIVERS[kind],
                geometry_name="geometry",
                geometry_type=cells.kind,
                crs=crs,
                layer_options=options,
                **about,
            )
    except RuntimeError:  # so are all errors of pyogrio
        raise BadInput(f"Cannot write {path.name!r}: choose another name, or another format.") from None
