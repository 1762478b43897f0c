"""The process that reads a file for another one: ``python -m veilmap.geofiles.worker TASK OPTIONS``."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from veilmap.errors import VeilmapError
from veilmap.geofiles import gdal_layers, zone_files
from veilmap.geofiles.process import ABOUT, REFUSED
from veilmap.geofiles.sandbox import confine

TASKS: dict[str, Callable[..., gdal_layers.Result]] = {
    "describe": gdal_layers.describe,
    "rows": gdal_layers.rows,
    "zones": zone_files.zones,
}


def main(task: str, options: str, out: Any) -> None:
    chosen = json.loads(options)
    if task == "zones":  # which anyone may have sent; rows are the owner's, and may be many
        zone_files.limit_resources()
    confine(_files_of(chosen["path"]))
    try:
        schema, about, batches = TASKS[task](**chosen)
    except VeilmapError as error:
        kind = type(error).__name__
        pa.ipc.new_stream(out, pa.schema([], {REFUSED: json.dumps([kind, str(error)])})).close()
        return
    schema = schema.with_metadata({ABOUT: json.dumps(about)})
    with pa.ipc.new_stream(out, schema) as stream:
        for batch in batches:
            stream.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))


def _files_of(path: str) -> list[str]:
    """A file and those that belong to it: the parts of a Shapefile, or SQLite's journals."""
    journals = [path + ending for ending in ("-wal", "-shm", "-journal")]
    endings = (".shx", ".dbf", ".prj", ".cpg")
    parts = [os.path.splitext(path)[0] + written for one in endings for written in (one, one.upper())]
    return [path, *journals, *parts]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], sys.argv[2], sys.stdout.buffer)
