"""Points in files, which are streamed and never completely in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from veilmap.domain import Domain
from veilmap.engines.batches import LocalEngine, Share
from veilmap.engines.redaction import no_warnings
from veilmap.engines.units import shared_type
from veilmap.errors import BadInput, UnreadableInput
from veilmap.geofiles import GDAL_DRIVERS, GEOJSON_EXTENSIONS, GEOJSON_LINES_EXTENSIONS

TEXT_EXTENSIONS = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
PARQUET_EXTENSIONS = (".parquet", ".geoparquet", ".pq", ".parq")
ALL_GEOJSON_EXTENSIONS = (*GEOJSON_EXTENSIONS, *GEOJSON_LINES_EXTENSIONS)
KNOWN_EXTENSIONS = (*TEXT_EXTENSIONS, *PARQUET_EXTENSIONS, *GDAL_DRIVERS, *ALL_GEOJSON_EXTENSIONS)


class Source(Protocol):
    """One file, opened as far as needed to know its columns."""

    @property
    def id_type(self) -> Any:
        """The Arrow type of its ids, None without a unit."""
        ...

    def shares(self) -> Iterator[Share]:
        """Yield all rows, each once, with fractions of this file."""
        ...


@dataclass(frozen=True, slots=True)
class FilesEngine(LocalEngine):
    """Files of any formats, read one after the other."""

    sources: tuple[Source, ...]
    sizes: tuple[int, ...]
    id_type: Any
    spills: ClassVar[bool] = True

    def reading_context(self) -> AbstractContextManager[None]:
        return no_warnings()

    def shares(self) -> Iterator[Share]:
        for source, size in zip(self.sources, self.sizes, strict=True):
            for fraction, batch in source.shares():
                yield fraction * size / sum(self.sizes), batch


def open_files(paths: Sequence[str | os.PathLike[str]], domain: Domain, unit: str | None = None) -> FilesEngine:
    """Open each file as far as needed to check that it has the columns."""
    names = [os.fspath(path) for path in paths]
    sources = tuple(_open(name, domain, unit) for name in names)
    stats = [os.stat(name) for name in names]
    seen: set[tuple[int, int]] = set()
    for name, stat in zip(names, stats, strict=True):
        if (stat.st_dev, stat.st_ino) in seen:
            raise BadInput(f"The file {name!r} is given twice, so its rows would count twice. Give each file once.")
        seen.add((stat.st_dev, stat.st_ino))
    return FilesEngine(sources, tuple(stat.st_size for stat in stats), _shared_type(sources, unit))


def _shared_type(sources: Sequence[Source], unit: str | None) -> Any:
    if unit is None:
        return None
    kinds = [source.id_type for source in sources]
    if (shared := shared_type(kinds)) is None:
        different = " and ".join(dict.fromkeys(map(str, kinds)))
        raise UnreadableInput(
            f"All files must have ids of one type in column {unit!r}, which is the unit of privacy, got {different}. "
            "Convert that column to the same type in all files."
        )
    return shared


def _open(path: str, domain: Domain, unit: str | None) -> Source:
    _must_be_readable(path)
    extension, input_name = _extension(path), f"The file {path!r}"
    damaged_message = f"{input_name} is truncated or damaged and cannot be read. Copy or export it again."
    if extension in TEXT_EXTENSIONS:
        from veilmap.engines.csv import open_text

        return open_text(path, domain, unit, input_name, damaged_message)
    if extension in PARQUET_EXTENSIONS:
        from veilmap.engines.parquet import open_parquet

        return open_parquet(path, domain, unit, input_name, damaged_message)
    if extension in ALL_GEOJSON_EXTENSIONS:
        from veilmap.engines.geojson import open_geojson

        return open_geojson(path, domain, unit, input_name, damaged_message)
    from veilmap.engines.gdal_layers import open_layer

    if extension == ".shp":
        damaged_message = f"{damaged_message} A Shapefile needs its .shx and .dbf files in the same folder."
    return open_layer(path, domain, unit, input_name, damaged_message)


def _must_be_readable(path: str) -> None:
    if os.path.isdir(path):
        raise UnreadableInput(f"{path!r} is a folder. Give the list of its files instead.")
    if not os.path.exists(path):
        raise UnreadableInput(f"There is no file {path!r}. Check its name and folder.")
    if not os.path.isfile(path):
        raise UnreadableInput(
            f"{path!r} is not a regular file (pipes and devices are not supported). Write the points to a file first."
        )
    if not os.access(path, os.R_OK):
        raise UnreadableInput(f"You do not have permission to read the file {path!r}. Ask its owner for it.")
    if os.path.getsize(path) == 0:
        raise UnreadableInput(f"The file {path!r} is empty: it does not even have a header. Export it again.")


def _extension(path: str) -> str:
    """Return the extension of a file name. It alone decides how the file is read; the content does not."""
    for extension in sorted(KNOWN_EXTENSIONS, key=len, reverse=True):
        if path.lower().endswith(extension):
            return extension
    extension = os.path.splitext(path)[1] or "none"
    raise UnreadableInput(
        f"The extension of a file name decides how the file is read, and that of {path!r} is not known ({extension}). "
        f"Rename the file to one of {', '.join(KNOWN_EXTENSIONS)}."
    )
