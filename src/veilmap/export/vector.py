"""Writers of polygons for GIS programs, and of CSV tables."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import chain
from pathlib import Path

import pyarrow as pa
from pyarrow import csv

from veilmap.errors import BadInput, need
from veilmap.export.leaves import ExportTable, layer_description
from veilmap.files.csv_cells import safe_cell
from veilmap.geography.crs import Ground
from veilmap.releases.release import Release

GDAL_DRIVERS = {".gpkg": "GPKG", ".fgb": "FlatGeobuf", ".geojson": "GeoJSON"}
# Full precision: with rounded coordinates, neighbouring polygons would overlap.
LAYER_OPTIONS = {".geojson": {"COORDINATE_PRECISION": "15"}}


def write_csv(release: Release, table: ExportTable, path: Path, progress: Callable[[float], None]) -> None:
    """Write the location and the numbers of each row as CSV."""
    batches = table.batches(release.privacy.private, False, progress)
    first = next(batches)
    schema = pa.schema([field.with_name(safe_cell(field.name)) for field in first.schema])
    with csv.CSVWriter(path, schema) as writer:
        for batch in chain([first], batches):
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))


def write_vector(release: Release, table: ExportTable, path: Path, progress: Callable[[float], None]) -> None:
    """Write a layer of polygons, with the privacy statement in its description."""
    pyogrio = need("pyogrio", "geo", f"Writing {path.suffix}")
    batches = table.batches(release.privacy.private, True, progress)
    first = next(batches)
    geometry = first.schema.field("geometry").with_metadata({"ARROW:extension:name": "geoarrow.wkb"})
    schema = first.schema.set(first.schema.get_field_index("geometry"), geometry)
    rows = pa.RecordBatchReader.from_batches(
        schema, (pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in chain([first], batches))
    )
    suffix, crs = path.suffix.lower(), Ground(release.domain).crs_name
    options = {"DESCRIPTION": layer_description(release), **LAYER_OPTIONS.get(suffix, {})}
    metadata = {"layer_metadata": {"PRIVACY": release.privacy.statement()}} if suffix == ".gpkg" else {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pyogrio warns when a layer has no coordinate system
            pyogrio.write_arrow(
                rows,
                path,
                layer=path.stem,
                driver=GDAL_DRIVERS[suffix],
                geometry_name="geometry",
                geometry_type=table.geometry_type,
                crs=crs,
                layer_options=options,
                **metadata,
            )
    except RuntimeError:  # the base class of all errors of pyogrio
        raise BadInput(f"Cannot write {path.name!r}. Choose another file name or another format.") from None
