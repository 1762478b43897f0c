"""Road intersections from TIGER/Line, the street map of the US Census Bureau, in its form of 2006 and in today's."""

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

ENDINGS = (".rt1", ".shp", ".zip")
RECORD = 228  # characters of a Record Type 1
CFCC = slice(55, 58)  # what a line is; roads begin with A
ENDS = (slice(190, 200), slice(200, 209), slice(209, 219), slice(219, 228))  # from longitude, latitude; to the same
MICRO = 1_000_000  # coordinates have six decimals
FARTHEST = np.array([180, 90]) * MICRO
KEYS = 2 * 90 * MICRO + 1  # of one longitude


def read_tiger(path: str | os.PathLike[str]) -> Floats:
    """The distinct points (longitude, latitude) where roads end or meet.

    A file, a folder or a folder of folders: of the 2006 Second Edition (``TGR53033.RT1``, or the county's zip), where
    a line ends at every crossing; or of today's shapefiles (``tl_2023_53033_roads.shp``, or its zip), where a line is
    a whole road.
    """
    place = Path(path)
    must_exist(place)
    files = sorted(file for file in place.rglob("*") if is_tiger(file)) if place.is_dir() else [place]
    if not files:
        raise UnreadableInput(f"The folder {str(path)!r} has no file of TIGER/Line: they end in {', '.join(ENDINGS)}.")
    keys = np.unique(np.concatenate([part for file in files for part in _read(file)]))
    if not len(keys):
        raise UnreadableInput(
            f"{str(path)!r} has no road: the class of a road begins with A (CFCC, in 2006) or S (MTFCC, today)."
        )
    points: Floats = (np.stack(np.divmod(keys, KEYS), axis=1) - FARTHEST) / MICRO
    return points


def is_tiger(path: Path) -> bool:
    """By its name."""
    return path.suffix.lower() in ENDINGS and path.is_file()


def must_exist(path: Path) -> None:
    """A sentence about a file or folder that is not there."""
    if not path.exists():
        raise UnreadableInput(f"There is no file or folder {str(path)!r}: check its name.")


def _read(path: Path) -> Iterator[Ints]:
    """The keys of the points, for each part of a file."""
    ending = path.suffix.lower()
    if ending == ".zip":
        yield from _read_zip(path)
    elif ending == ".shp":
        yield _crossings(str(path), str(path))
    elif ending == ".rt1":
        yield _chain_ends(_bytes(path), str(path))
    else:
        raise UnreadableInput(f"A file of TIGER/Line ends in {', '.join(ENDINGS)}, got {str(path)!r}.")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreadableInput(f"The file {str(path)!r} cannot be read: {error.strerror}.") from None


def _read_zip(path: Path) -> Iterator[Ints]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.lower().endswith(ENDINGS[:2])]
            for name in names:
                where = f"{path}/{name}"
                if name.lower().endswith(".shp"):
                    yield _crossings(f"/vsizip/{{{path.absolute()}}}/{name}", where)
                else:
                    yield _chain_ends(archive.read(name), where)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError):  # the last for one with a password
        raise UnreadableInput(f"The zip {str(path)!r} is cut short, damaged or locked: fetch it anew.") from None
    if not names:
        raise UnreadableInput(f"The zip {str(path)!r} has neither a .RT1 nor a .shp inside: it is not of TIGER/Line.")


def _chain_ends(data: bytes, where: str) -> Ints:
    """Both ends of each road in records of type 1."""
    lines = [line.rstrip(b"\r") for line in data.split(b"\n")]
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line.strip(b" \x1a")]  # DOS ends with ^Z
    for number, line in numbered:
        if len(line) < RECORD or line[:1] != b"1":
            raise UnreadableInput(
                f"Line {number} of {where!r} is no Record Type 1 of TIGER/Line: it must begin with 1 and have "
                f"{RECORD} characters, and has {len(line)}. Fetch the file anew."
            )
    text = np.frombuffer(b"".join(line[:RECORD] for _, line in numbered), np.uint8).reshape(-1, RECORD)
    text = text[text[:, CFCC.start] == ord("A")]
    try:
        ends = [text[:, part].copy().view(f"S{part.stop - part.start}")[:, 0].astype(np.int64) for part in ENDS]
    except ValueError:
        raise UnreadableInput(f"A coordinate in {where!r} is no whole number: fetch the file anew.") from None
    return _keys(np.stack(ends, axis=1).reshape(-1, 2), where)


def _keys(points: Ints, where: str) -> Ints:
    """One number for each point, given in millionths of a degree: quick to sort."""
    if (np.abs(points) > FARTHEST).any():
        raise UnreadableInput(f"{where!r} must have degrees of longitude and latitude: some are beyond 180 or 90.")
    east, north = (points + FARTHEST).T
    return np.asarray(east * KEYS + north)


def _crossings(source: str, where: str) -> Ints:
    """Points of a shapefile where a road ends, or where three or more ways lead on."""
    lines = _road_lines(source, where)
    shapely = need("shapely", "geo", "Reading a shapefile of TIGER/Line")
    try:
        parts = shapely.get_parts(shapely.from_wkb(lines))
    except shapely.errors.GEOSException:
        raise UnreadableInput(f"{where!r} has a line that is damaged: fetch it anew.") from None
    if not np.isin(shapely.get_type_id(parts), [1, 2]).all():  # lines and rings
        raise UnreadableInput(f"{where!r} must have roads as lines, and has other shapes: it is not of TIGER/Line.")
    degrees, part = shapely.get_coordinates(parts, return_index=True)
    keys = _keys(np.rint(degrees * MICRO).astype(np.int64), where)
    places, place = np.unique(keys, return_inverse=True)
    first = np.diff(part, prepend=-1) != 0  # of its line
    ends = np.bincount(place[first | np.roll(first, -1)], minlength=len(places))
    return places[(ends > 0) | (_ways(place, part, len(places)) > 2)]


def _ways(place: Ints, part: Ints, places: int) -> Ints:
    """How many other places are next to each. A road with two names is there twice, and counts once."""
    here, there = place[:-1], place[1:]
    step = (part[:-1] == part[1:]) & (here != there)
    both = np.sort(np.stack([here[step], there[step]], axis=1), axis=1)
    return np.bincount(np.unique(both, axis=0).ravel(), minlength=places)


def _road_lines(source: str, where: str) -> NDArray[Any]:
    """The geometries of roads, as WKB."""
    pyogrio = need("pyogrio", "geo", "Reading a shapefile of TIGER/Line")
    try:
        names = pyogrio.read_info(source)["fields"]
        kind = next((name for name in names if name.upper() == "MTFCC"), None)
        if kind is not None:
            _, _, lines, (classes,) = pyogrio.raw.read(source, columns=[kind])
    except (pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError, pyogrio.errors.FeatureError):
        raise UnreadableInput(
            f"{where!r} cannot be read as a shapefile: it is damaged, or its .shx or .dbf is not beside it."
        ) from None
    if kind is None:
        raise UnreadableInput(f"{where!r} has no column MTFCC, the class of a line: it is not of TIGER/Line.")
    lines = lines[[str(one).startswith("S") for one in classes]]
    if any(line is None for line in lines):  # what is left of a line beyond the end of the file
        raise UnreadableInput(f"{where!r} is cut short or damaged: some roads have no shape. Fetch it anew.")
    return np.asarray(lines)
