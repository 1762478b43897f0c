"""Read a file in a separate process, which sends back an Arrow stream or an error of veilmap."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from veilmap import errors
from veilmap.errors import UnreadableInput, VeilmapError, need

REFUSAL_KEY = b"veilmap:refused"
"""Key of the stream's schema metadata: an error instead of rows."""
METADATA_KEY = b"veilmap:about"
"""Key of the stream's schema metadata: what is known about the file besides its columns."""

GDAL_VARIABLE_PREFIXES = ("GDAL_", "OGR_", "CPL_", "VSI", "AWS_", "AZURE_", "GS_", "OSS_", "SWIFT_", "PROJ_", "SQLITE_")
"""Prefixes of environment variables that could give GDAL access to other files, hosts or drivers."""


@contextlib.contextmanager
def reading(
    task: str, options: Mapping[str, Any], failure_message: str, drivers: Sequence[str] = ()
) -> Iterator[pa.RecordBatchReader]:
    """Start a task of ``veilmap.geofiles.worker``, and return a context manager with its stream of batches.

    Parameters
    ----------
    task, options
        The name of the task, and its arguments.
    failure_message
        The message of the error if the process fails, exceeds a limit, or ends too early.
    drivers
        The only drivers that GDAL may have in the process.
    """
    command = [sys.executable, "-P", "-m", "veilmap.geofiles.worker", task, json.dumps(dict(options))]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environment(drivers), **pipes) as process:  # type: ignore[call-overload]  # noqa: S603
        try:
            stream = _open(process.stdout, failure_message)
            yield stream
            process.stdout.read()  # so that the process can end
        except BaseException:
            process.kill()
            raise
        if process.wait() != 0:  # the rows may be incomplete
            raise UnreadableInput(failure_message)


def metadata_of(schema: pa.Schema) -> dict[str, Any]:
    """Return what a task reports about a file."""
    metadata: dict[str, Any] = json.loads((schema.metadata or {}).get(METADATA_KEY, b"{}"))
    return metadata


def _open(pipe: Any, failure_message: str) -> pa.RecordBatchReader:
    try:
        stream = pa.ipc.open_stream(pipe)
    except pa.ArrowException:
        stream = None
    if stream is None:  # raised outside the handler: Arrow's error may quote a value
        raise UnreadableInput(failure_message)
    if refusal := (stream.schema.metadata or {}).get(REFUSAL_KEY):
        kind, message = json.loads(refusal)
        error: type[VeilmapError] = getattr(errors, kind)
        raise error(message)
    return stream


def environment(drivers: Sequence[str]) -> dict[str, str]:
    """Return this process's variables without those that configure GDAL, and with those that restrict its drivers."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(GDAL_VARIABLE_PREFIXES)}
    # The process must use this copy of veilmap.
    code = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, [code, kept.get("PYTHONPATH")]))
    if not drivers:
        return kept
    pyogrio = need("pyogrio", "geo", "Reading a GIS file")
    skipped = [os.environ.get(name, "") for name in ("GDAL_SKIP", "OGR_SKIP")]  # list_drivers leaves these out
    return kept | {
        "GDAL_SKIP": ",".join([*filter(None, skipped), *(n for n in pyogrio.list_drivers() if n not in drivers)]),
        "GDAL_DRIVER_PATH": "disable",  # no plugins
        "GDAL_HTTP_MAX_RETRY": "0",
        "CPL_VSIL_CURL_ALLOWED_FILENAME": "none",  # no file over the network
        "CPL_LOG": os.devnull,  # warnings quote cells
        "OGR_FLATGEOBUF_STREAM_BASE_IMPL": "YES",  # the fast path mixes up rows after a null geometry (GDAL 3.12.4)
    }
