"""The program that reads a file for another process: ``python -m veilmap.geofiles.worker TASK OPTIONS``."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from veilmap.errors import VeilmapError
from veilmap.geofiles import gdal_layers, zone_reader
from veilmap.geofiles.process import METADATA_KEY, REFUSAL_KEY
from veilmap.geofiles.sandbox import confine

WORKER_TASKS: dict[str, Callable[..., gdal_layers.Result]] = {
    "describe": gdal_layers.describe,
    "rows": gdal_layers.rows,
    "zones": zone_reader.zones,
}


def main(task: str, options: str, out: Any) -> None:
    arguments = json.loads(options)
    if task == "zones":  # zones may come from a stranger; rows are the owner's, and may be many
        zone_reader.limit_resources()
    confine(_files_of(arguments["path"]))
    try:
        schema, metadata, batches = WORKER_TASKS[task](**arguments)
    except VeilmapError as error:
        kind = type(error).__name__
        pa.ipc.new_stream(out, pa.schema([], {REFUSAL_KEY: json.dumps([kind, str(error)])})).close()
        return
    schema = schema.with_metadata({METADATA_KEY: json.dumps(metadata)})
    with pa.ipc.new_stream(out, schema) as stream:
        for batch in batches:
            stream.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))


def _files_of(path: str) -> list[str]:
    """Return a file and the files that belong to it: the parts of a Shapefile, or SQLite's journals."""
    journals = [path + suffix for suffix in ("-wal", "-shm", "-journal")]
    extensions = (".shx", ".dbf", ".prj", ".cpg")
    parts = [os.path.splitext(path)[0] + cased for one in extensions for cased in (one, one.upper())]
    return [path, *journals, *parts]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], sys.argv[2], sys.stdout.buffer)
