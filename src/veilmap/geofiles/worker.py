"""The process that reads a file for another one: ``python -m veilmap.geofiles.worker TASK OPTIONS``."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from veilmap.errors import VeilmapError
from veilmap.geofiles import layers, zones
from veilmap.geofiles.process import ABOUT, REFUSED

TASKS: dict[str, Callable[..., layers.Result]] = {
    "describe": layers.describe,
    "rows": layers.rows,
    "zones": zones.zones,
}


def main(task: str, options: str, out: Any) -> None:
    try:
        schema, about, batches = TASKS[task](**json.loads(options))
    except VeilmapError as error:
        kind = type(error).__name__
        pa.ipc.new_stream(out, pa.schema([], {REFUSED: json.dumps([kind, str(error)])})).close()
        return
    schema = schema.with_metadata({ABOUT: json.dumps(about)})
    with pa.ipc.new_stream(out, schema) as stream:
        for batch in batches:
            stream.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], sys.argv[2], sys.stdout.buffer)
