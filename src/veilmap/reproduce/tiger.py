"""Read road intersections from TIGER/Line, the street map of the US Census Bureau, in its 2006 and current formats."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilmap.arrays import Floats, Ints
from veilmap.errors import UnreadableInput, need

TIGER_SUFFIXES = (".rt1", ".shp", ".zip")
RECORD_CHARACTERS = 228  # length of a Record Type 1
CLASS_COLUMNS = slice(55, 58)  # the feature class (CFCC); that of a road begins with A
END_COLUMNS = (slice(190, 200), slice(200, 209), slice(209, 219), slice(219, 228))
"""Longitude and latitude of a line's start, then of its end."""
UNITS_PER_DEGREE = 1_000_000  # coordinates have six decimals
MAX_COORDINATES = np.array([180, 90]) * UNITS_PER_DEGREE
KEYS_PER_LONGITUDE = 2 * 90 * UNITS_PER_DEGREE + 1


def read_tiger(path: str | os.PathLike[str]) -> Floats:
    """Return the distinct points (longitude, latitude) where roads end or meet.

    The path is a file, a folder or a folder of folders. Two formats are read: the 2006 Second Edition
    (``TGR53033.RT1``, or the county's zip), where a line ends at every crossing, and the current shapefiles
    (``tl_2023_53033_roads.shp``, or its zip), where a line is a whole road.
    """
    place = Path(path)
    must_exist(place)
    files = sorted(file for file in place.rglob("*") if is_tiger(file)) if place.is_dir() else [place]
    if not files:
        raise UnreadableInput(
            f"The folder {str(path)!r} contains no TIGER/Line file. Such files end in {', '.join(TIGER_SUFFIXES)}."
        )
    keys = np.unique(np.concatenate([part for file in files for part in _read(file)]))
    if not len(keys):
        raise UnreadableInput(
            f"{str(path)!r} contains no roads. The class of a road begins with A (CFCC, in 2006) or S (MTFCC, today)."
        )
    points: Floats = (np.stack(np.divmod(keys, KEYS_PER_LONGITUDE), axis=1) - MAX_COORDINATES) / UNITS_PER_DEGREE
    return points


def is_tiger(path: Path) -> bool:
    """Return whether a path is a file with a TIGER/Line suffix."""
    return path.suffix.lower() in TIGER_SUFFIXES and path.is_file()


def must_exist(path: Path) -> None:
    """Raise ``UnreadableInput`` if a file or folder does not exist."""
    if not path.exists():
        raise UnreadableInput(f"There is no file or folder {str(path)!r}. Check its name.")


def _read(path: Path) -> Iterator[Ints]:
    """Yield the keys of the points in each part of a file."""
    ending = path.suffix.lower()
    if ending == ".zip":
        yield from _read_zip(path)
    elif ending == ".shp":
        yield _crossings(str(path), str(path))
    elif ending == ".rt1":
        yield _chain_ends(_bytes(path), str(path))
    else:
        raise UnreadableInput(f"A TIGER/Line file must end in {', '.join(TIGER_SUFFIXES)}, got {str(path)!r}.")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreadableInput(f"The file {str(path)!r} cannot be read: {error.strerror}.") from None


def _read_zip(path: Path) -> Iterator[Ints]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.lower().endswith(TIGER_SUFFIXES[:2])]
            for name in names:
                where = f"{path}/{name}"
                if name.lower().endswith(".shp"):
                    yield _crossings(f"/vsizip/{{{path.absolute()}}}/{name}", where)
                else:
                    yield _chain_ends(archive.read(name), where)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError):  # RuntimeError: it has a password
        raise UnreadableInput(
            f"The zip file {str(path)!r} is incomplete, damaged or password-protected. Download it again."
        ) from None
    if not names:
        raise UnreadableInput(
            f"The zip file {str(path)!r} contains neither a .RT1 nor a .shp file, so it is not from TIGER/Line."
        )


def _chain_ends(data: bytes, where: str) -> Ints:
    """Return the keys of both ends of each road in records of type 1."""
    lines = [line.rstrip(b"\r") for line in data.split(b"\n")]
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip(b" \x1a")]  # DOS files end with ^Z
    for number, line in numbered:
        if len(line) < RECORD_CHARACTERS or line[:1] != b"1":
            raise UnreadableInput(
                f"Line {number} of {where!r} is not a TIGER/Line Record Type 1: it must begin with 1 and have "
                f"{RECORD_CHARACTERS} characters, but has {len(line)}. Download the file again."
            )
    text = np.frombuffer(b"".join(line[:RECORD_CHARACTERS] for _, line in numbered), np.uint8).reshape(
        -1, RECORD_CHARACTERS
    )
    text = text[text[:, CLASS_COLUMNS.start] == ord("A")]
    try:
        ends = [text[:, part].copy().view(f"S{part.stop - part.start}")[:, 0].astype(np.int64) for part in END_COLUMNS]
    except ValueError:
        raise UnreadableInput(f"A coordinate in {where!r} is not a whole number. Download the file again.") from None
    return _keys(np.stack(ends, axis=1).reshape(-1, 2), where)


def _keys(points: Ints, where: str) -> Ints:
    """Return one integer per point, which sorts fast; coordinates are in millionths of a degree."""
    if (np.abs(points) > MAX_COORDINATES).any():
        raise UnreadableInput(
            f"{where!r} must contain longitudes and latitudes in degrees, but some are beyond 180 or 90."
        )
    east, north = (points + MAX_COORDINATES).T
    return np.asarray(east * KEYS_PER_LONGITUDE + north)


def _crossings(source: str, where: str) -> Ints:
    """Return the keys of points in a shapefile where a road ends, or where three or more road segments meet."""
    lines = _road_lines(source, where)
    shapely = need("shapely", "geo", "Reading a shapefile of TIGER/Line")
    try:
        parts = shapely.get_parts(shapely.from_wkb(lines))
    except shapely.errors.GEOSException:
        raise UnreadableInput(f"{where!r} contains a damaged line. Download it again.") from None
    if not np.isin(shapely.get_type_id(parts), [1, 2]).all():  # lines and rings
        raise UnreadableInput(
            f"{where!r} must contain roads as lines, but has other shapes, so it is not from TIGER/Line."
        )
    degrees, part = shapely.get_coordinates(parts, return_index=True)
    keys = _keys(np.rint(degrees * UNITS_PER_DEGREE).astype(np.int64), where)
    places, place = np.unique(keys, return_inverse=True)
    first = np.diff(part, prepend=-1) != 0  # the first point of each line
    ends = np.bincount(place[first | np.roll(first, -1)], minlength=len(places))
    return places[(ends > 0) | (_ways(place, part, len(places)) > 2)]


def _ways(place: Ints, part: Ints, places: int) -> Ints:
    """Return the number of places adjacent to each place. A road listed twice under two names counts once."""
    here, there = place[:-1], place[1:]
    step = (part[:-1] == part[1:]) & (here != there)
    both = np.sort(np.stack([here[step], there[step]], axis=1), axis=1)
    return np.bincount(np.unique(both, axis=0).ravel(), minlength=places)


def _road_lines(source: str, where: str) -> NDArray[Any]:
    """Return the geometries of roads as WKB."""
    pyogrio = need("pyogrio", "geo", "Reading a shapefile of TIGER/Line")
    try:
        names = pyogrio.read_info(source)["fields"]
        kind = next((name for name in names if name.upper() == "MTFCC"), None)
        if kind is not None:
            _, _, lines, (classes,) = pyogrio.raw.read(source, columns=[kind])
    except (pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError, pyogrio.errors.FeatureError):
        raise UnreadableInput(
            f"{where!r} cannot be read as a shapefile: it is damaged, or its .shx or .dbf file is missing."
        ) from None
    if kind is None:
        raise UnreadableInput(f"{where!r} has no column MTFCC (the class of a line), so it is not from TIGER/Line.")
    lines = lines[[str(one).startswith("S") for one in classes]]
    if any(line is None for line in lines):  # happens if a shape lies beyond the end of the file
        raise UnreadableInput(f"{where!r} is incomplete or damaged: some roads have no shape. Download it again.")
    return np.asarray(lines)
