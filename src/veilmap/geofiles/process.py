"""Read a file in a process of its own. What comes back is an Arrow stream, or one of our own errors."""

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

REFUSED = b"veilmap:refused"
ABOUT = b"veilmap:about"
"""Keys of the stream's schema: an error in place of rows, and what is known of the file beside its columns."""

OTHER_SETTINGS = ("GDAL_", "OGR_", "CPL_", "VSI", "AWS_", "AZURE_", "GS_", "OSS_", "SWIFT_", "PROJ_", "SQLITE_")
"""How the names of environment variables begin that would let GDAL reach other files, hosts or drivers."""


@contextlib.contextmanager
def reading(
    task: str, options: Mapping[str, Any], damaged: str, drivers: Sequence[str] = ()
) -> Iterator[pa.RecordBatchReader]:
    """Start a task of ``veilmap.geofiles.worker``, and give its stream of batches.

    Parameters
    ----------
    task, options
        What to do, and its arguments.
    damaged
        The sentence of the error, should the process fail, be stopped by a limit, or end too early.
    drivers
        The only drivers that GDAL may have there.
    """
    command = [sys.executable, "-P", "-m", "veilmap.geofiles.worker", task, json.dumps(dict(options))]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environment(drivers), **pipes) as process:  # type: ignore[call-overload]  # noqa: S603
        try:
            stream = _open(process.stdout, damaged)
            yield stream
            process.stdout.read()  # it may end now
        except BaseException:
            process.kill()
            raise
        if process.wait() != 0:  # what it sent may be a part only
            raise UnreadableInput(damaged)


def about_of(schema: pa.Schema) -> dict[str, Any]:
    """What a task says of a file."""
    found: dict[str, Any] = json.loads((schema.metadata or {}).get(ABOUT, b"{}"))
    return found


def _open(pipe: Any, damaged: str) -> pa.RecordBatchReader:
    try:
        stream = pa.ipc.open_stream(pipe)
    except pa.ArrowException:
        stream = None
    if stream is None:  # raised outside the handler: what Arrow says may quote a value
        raise UnreadableInput(damaged)
    if refused := (stream.schema.metadata or {}).get(REFUSED):
        kind, sentence = json.loads(refused)
        error: type[VeilmapError] = getattr(errors, kind)
        raise error(sentence)
    return stream


def environment(drivers: Sequence[str]) -> dict[str, str]:
    """The variables of this process without those that steer GDAL; with those that leave it these drivers alone."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(OTHER_SETTINGS)}
    code = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # the same veilmap as here
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, [code, kept.get("PYTHONPATH")]))
    if not drivers:
        return kept
    pyogrio = need("pyogrio", "geo", "Reading a GIS file")
    skipped = [os.environ.get(name, "") for name in ("GDAL_SKIP", "OGR_SKIP")]  # which are not in the list then
    return kept | {
        "GDAL_SKIP": ",".join([*filter(None, skipped), *(n for n in pyogrio.list_drivers() if n not in drivers)]),
        "GDAL_DRIVER_PATH": "disable",  # no plug-ins
        "GDAL_HTTP_MAX_RETRY": "0",
        "CPL_VSIL_CURL_ALLOWED_FILENAME": "none",  # no file over the network
        "CPL_LOG": os.devnull,  # warnings quote cells
        "OGR_FLATGEOBUF_STREAM_BASE_IMPL": "YES",  # the quick way mixes up rows after a null geometry (GDAL 3.12.4)
    }
