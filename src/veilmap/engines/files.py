"""Points in files, which are streamed and never held in memory."""

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
from veilmap.geofiles import DOCUMENTS, DRIVERS, LINES

TEXT = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
PARQUET = (".parquet", ".geoparquet", ".pq", ".parq")
GEOJSON = (*DOCUMENTS, *LINES)
KNOWN = (*TEXT, *PARQUET, *DRIVERS, *GEOJSON)


class Source(Protocol):
    """One file, opened as far as its columns are known."""

    @property
    def id_type(self) -> Any:
        """The Arrow type of its ids, None without a unit."""
        ...

    def shares(self) -> Iterator[Share]:
        """All rows, each once; the parts are of this file."""
        ...


@dataclass(frozen=True, slots=True)
class FilesEngine(LocalEngine):
    """Files of any kinds, read one after the other."""

    sources: tuple[Source, ...]
    sizes: tuple[int, ...]
    id_type: Any
    spills: ClassVar[bool] = True

    def quiet(self) -> AbstractContextManager[None]:
        return no_warnings()

    def shares(self) -> Iterator[Share]:
        for source, size in zip(self.sources, self.sizes, strict=True):
            for part, batch in source.shares():
                yield part * size / sum(self.sizes), batch


def open_files(paths: Sequence[str | os.PathLike[str]], domain: Domain, unit: str | None = None) -> FilesEngine:
    """Open each file as far as needed to know that it has the columns."""
    names = [os.fspath(path) for path in paths]
    sources = tuple(_open(name, domain, unit) for name in names)
    about = [os.stat(name) for name in names]
    seen: set[tuple[int, int]] = set()
    for name, one in zip(names, about, strict=True):
        if (one.st_dev, one.st_ino) in seen:
            raise BadInput(f"Each file must be given once, and {name!r} is given again: its rows would count twice.")
        seen.add((one.st_dev, one.st_ino))
    return FilesEngine(sources, tuple(one.st_size for one in about), _shared_type(sources, unit))


def _shared_type(sources: Sequence[Source], unit: str | None) -> Any:
    if unit is None:
        return None
    kinds = [source.id_type for source in sources]
    if (shared := shared_type(kinds)) is None:
        different = " and ".join(dict.fromkeys(map(str, kinds)))
        raise UnreadableInput(
            f"The files must have ids of one kind in column {unit!r}, which is the unit of privacy, got {different}: "
            "convert that column to the same in all of them."
        )
    return shared


def _open(path: str, domain: Domain, unit: str | None) -> Source:
    _must_be_readable(path)
    kind, where = _kind(path), f"The file {path!r}"
    damaged = f"{where} is cut short or damaged and cannot be read: copy or export it anew."
    if kind in TEXT:
        from veilmap.engines.csv import open_text

        return open_text(path, domain, unit, where, damaged)
    if kind in PARQUET:
        from veilmap.engines.parquet import open_parquet

        return open_parquet(path, domain, unit, where, damaged)
    if kind in GEOJSON:
        from veilmap.engines.geojson import open_geojson

        return open_geojson(path, domain, unit, where, damaged)
    from veilmap.engines.gdal_layers import open_layer

    if kind == ".shp":
        damaged = f"{damaged} A Shapefile needs its .shx and .dbf beside it."
    return open_layer(path, domain, unit, where, damaged)


def _must_be_readable(path: str) -> None:
    if os.path.isdir(path):
        raise UnreadableInput(f"Points come from files, and {path!r} is a folder: give the list of its files.")
    if not os.path.exists(path):
        raise UnreadableInput(f"There is no file {path!r}: check its name and folder.")
    if not os.path.isfile(path):
        raise UnreadableInput(f"Points come from regular files, and {path!r} is none: write them to a file first.")
    if not os.access(path, os.R_OK):
        raise UnreadableInput(f"The file {path!r} may not be read by this user: ask for permission to read it.")
    if os.path.getsize(path) == 0:
        raise UnreadableInput(f"The file {path!r} is empty, not even a header is there: export it anew.")


def _kind(path: str) -> str:
    """The ending of a file's name: the owner's word for how to read it. What is in the file has no say."""
    for ending in sorted(KNOWN, key=len, reverse=True):
        if path.lower().endswith(ending):
            return ending
    ending = os.path.splitext(path)[1] or "none"
    raise UnreadableInput(
        f"The ending of a file's name says how to read it, and that of {path!r} is not known ({ending}): "
        f"rename it to one of {', '.join(KNOWN)}."
    )
