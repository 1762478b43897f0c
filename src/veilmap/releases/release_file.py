"""The release file: Parquet with one row per node, and GeoParquet 1.1 for two axes (docs/format.md).

A file is written completely, without a name where the system supports this, and then moved to its place. Its checksum
covers each byte: it is computed with its own 64 digits set to zero, and then replaces them.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from veilmap.arrays import Flags, Floats, Ints
from veilmap.domain import Domain
from veilmap.errors import Damaged, NewerVersion, ReleaseFileError
from veilmap.estimate.least_squares import standard_errors
from veilmap.estimate.node_estimates import Borders, NodeEstimates
from veilmap.files.atomic_writes import write_atomically
from veilmap.files.parquet_limits import must_be_within_limits
from veilmap.geography.crs import LON_LAT_CRS, projjson
from veilmap.kernels.box_walks import MAX_TREE_LEVELS
from veilmap.method.method import Noise
from veilmap.releases.cost_check import count_prices, must_be_worth
from veilmap.releases.privacy import Privacy
from veilmap.trees import CurveTree, CutTree, RegularTree, Tree

FORMAT_VERSION = 2
HEADER_KEY = b"veilmap"
CHECKSUM_KEY = b"veilmap:checksum"
BLANK_DIGEST = b"0" * 64
_DIGEST = re.compile(CHECKSUM_KEY + rb".{1,8}?sha256:([0-9a-f]{64})", re.DOTALL)

_BOX = pa.struct([(side, pa.float64()) for side in ("xmin", "ymin", "xmax", "ymax")])
MAX_COLUMNS = 80  # a release with 8 axes has 33
MAX_ROW_GROUPS = 1 << 16
NODES_PER_ROW_GROUP = 1 << 18
MAX_NODES_PER_BYTE = 16
"""Limits on the compression of a file. Measured on empty releases with epsilon 100: files of coarse Hilbert curves have
up to 10.3 nodes per byte with three axes and 8.4 with two. Other files with one or two axes have up to 0.25, because
their boxes compress less."""
MAX_CURVE_NODES_PER_BYTE = 10  # one or two axes, Hilbert curve
MAX_BOX_NODES_PER_BYTE = 1  # one or two axes, boxes
ROWS_PER_BATCH = 1 << 16
MAX_BYTES_PER_VALUE = 128  # of uncompressed pages: a polygon takes 97 bytes, a number 12
MAX_BYTES_PER_COLUMN = 1 << 14  # in addition
MAX_ABSOLUTE_ESTIMATE = 1e20  # larger than any noise, and small enough that sums and products of floats do not overflow
MAX_VARIANCE = 1e50


def node_tables(
    domain: Domain, nodes: NodeEstimates, consistent: bool, max_nodes: int = NODES_PER_ROW_GROUP
) -> Iterator[pa.Table]:
    """Yield the table of nodes in pieces: one row per node in level order, as in ``Release.nodes`` and in a file."""
    stderr = standard_errors(nodes, consistent)
    for start in range(0, nodes.tree.size, max_nodes):
        yield _node_table(domain, nodes, stderr, slice(start, min(start + max_nodes, nodes.tree.size)))


def _node_table(domain: Domain, nodes: NodeEstimates, stderr: Floats, rows: slice) -> pa.Table:
    tree, parent, leaf = nodes.tree, nodes.tree.parent[rows], nodes.tree.is_leaf[rows]
    estimate, measured = nodes.estimate[rows], np.isfinite(nodes.noise_variance[rows])
    edges = [[domain.edges(side[rows, a], a) for side in (tree.lo, tree.hi)] for a in range(domain.dimensions)]
    columns: dict[str, Any] = {
        "node": np.arange(rows.start, rows.stop),
        "parent": pa.array(parent, mask=parent < 0),
        "level": tree.node_level[rows].astype(np.int16),
        "leaf": leaf,
        "noisy_count": pa.array(nodes.noisy_count[rows], mask=~measured),
        "noise_variance": pa.array(nodes.noise_variance[rows], mask=~measured),
        "estimate": pa.array(estimate, mask=np.isnan(estimate)),
        "stderr": _finite(stderr[rows]),
        "subtree_variance": _finite(nodes.subtree_variance[rows]),
    }
    if nodes.slope is not None:
        for k, name in enumerate(domain.names):
            columns[f"{name}_slope"] = pa.array(nodes.slope[rows, k], mask=~leaf)
    if nodes.known_unevenness is not None:
        columns["unevenness"] = pa.array(nodes.known_unevenness[rows], mask=~leaf)
    if isinstance(tree, CurveTree):
        columns["key_from"], columns["key_to"] = tree.keys.lo[rows, 0], tree.keys.hi[rows, 0]
    if domain.dimensions == 2:
        (x0, x1), (y0, y1) = edges
        columns["bbox"] = pa.StructArray.from_arrays(
            [pa.array(c) for c in (x0, y0, x1, y1)], ["xmin", "ymin", "xmax", "ymax"]
        )
        columns["geometry"] = rectangles(x0, y0, x1, y1)
    else:
        for name, (lo, hi) in zip(domain.names, edges, strict=True):
            columns[f"{name}_low"], columns[f"{name}_high"] = lo, hi
    return pa.table(columns)


def _finite(values: Floats) -> pa.Array:
    return pa.array(values, mask=~np.isfinite(values))


def rectangles(x0: Any, y0: Any, x1: Any, y1: Any) -> pa.Array:
    """Return rectangles as WKB polygons: each has a header of 13 bytes and five corners, counter-clockwise."""
    header = np.frombuffer(bytes([1, 3, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0]), np.uint8)
    corners = np.stack([x0, y0, x1, y0, x1, y1, x0, y1, x0, y0], axis=1).astype("<f8")
    body = np.empty((len(corners), 93), np.uint8)
    body[:, :13] = header
    body[:, 13:] = corners.view(np.uint8)
    offsets = np.arange(len(corners) + 1, dtype=np.int32) * 93  # tables are small enough for 32-bit offsets
    return pa.Array.from_buffers(pa.binary(), len(corners), [None, pa.py_buffer(offsets), pa.py_buffer(body)])


def write(
    path: str | os.PathLike[str],
    tables: Iterable[pa.Table],
    header: Mapping[str, Any],
    domain: Domain,
    overwrite: bool = True,
) -> None:
    """Write a release file completely or not at all. Each table becomes a row group; tables may be generated lazily."""
    keys = {HEADER_KEY: json.dumps(header, ensure_ascii=False)}
    if domain.dimensions == 2:
        keys[b"geo"] = json.dumps(geoparquet(domain))
    tables = iter(tables)
    first = next(tables)
    buffer = io.BytesIO()
    with pq.ParquetWriter(
        buffer,
        first.schema.with_metadata(keys),
        compression="zstd",
        compression_level=3,
        use_dictionary=[
            "level",
            "leaf",
            "noise_variance",
            "stderr",
            "subtree_variance",
            "unevenness",
            *_box_columns(first),
        ],
        column_encoding={"node": "DELTA_BINARY_PACKED", "parent": "DELTA_BINARY_PACKED"},
        write_statistics=True,
    ) as writer:
        for table in chain([first], tables):
            writer.write_table(table.replace_schema_metadata(keys), row_group_size=NODES_PER_ROW_GROUP)
        writer.add_key_value_metadata({CHECKSUM_KEY.decode(): f"sha256:{BLANK_DIGEST.decode()}"})
    data = bytearray(buffer.getbuffer())
    blank = _stated_digest(data)
    assert blank is not None  # noqa: S101
    data[blank.start(1) : blank.end(1)] = hashlib.sha256(data).hexdigest().encode()
    write_atomically(path, data, overwrite)


def is_release(path: str | os.PathLike[str]) -> bool:
    """Return whether a file has the form of a release."""
    try:
        data = bytes_of(path)
    except OSError:
        return False
    return data.startswith(b"PAR1") and _stated_digest(data) is not None


def _stated_digest(data: bytes | bytearray) -> re.Match[bytes] | None:
    """Find the checksum that a file states, in its footer."""
    return _DIGEST.match(data, max(data.rfind(CHECKSUM_KEY), 0))


def _box_columns(table: pa.Table) -> list[str]:
    flat = [name for name in table.column_names if name.endswith(("_low", "_high"))]
    return flat + ["bbox.xmin", "bbox.ymin", "bbox.xmax", "bbox.ymax"] * ("bbox" in table.column_names)


def geoparquet(domain: Domain) -> dict[str, Any]:
    """Return the ``geo`` metadata of a file with two axes. Refuse an unknown coordinate system."""
    (x0, y0), (x1, y1) = domain.lo.tolist(), domain.hi.tolist()
    geometry: dict[str, Any] = {
        "encoding": "WKB",
        "geometry_types": ["Polygon"],
        "orientation": "counterclockwise",
        "edges": "planar",
        "bbox": [x0, y0, x1, y1],
        "covering": {"bbox": {side: ["bbox", side] for side in ("xmin", "ymin", "xmax", "ymax")}},
    }
    if domain.crs is None:
        geometry["crs"] = None
    elif domain.crs not in LON_LAT_CRS:
        geometry["crs"] = projjson(domain.crs)
    return {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": geometry}}


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], pa.Table]:
    """Read and check the header and the columns of a release file."""
    try:
        data = bytes_of(path)
    except OSError as error:
        raise ReleaseFileError(f"Cannot read {path}: {error.strerror}.") from None
    return parsed(path, data)


def bytes_of(path: str | os.PathLike[str]) -> bytes:
    """Read a file. Refuse pipes and devices, which may never end."""
    place = Path(path)
    if place.exists() and not (place.is_file() or place.is_dir()):
        raise OSError(errno.EINVAL, "it is a pipe or a device, not a regular file")
    return place.read_bytes()


def parsed(path: str | os.PathLike[str], data: bytes) -> tuple[dict[str, Any], pa.Table]:
    """Check the bytes of a file and return its header and columns. A valid checksum does not make it trustworthy."""
    with _damage(path):
        file, header, domain = _opened(path, data)
        names = _named_columns(file, header["tree"], domain)
        _must_have_noise(path, file, header)
        if header["tree"]["splits"] is None:
            _must_be_in_order(file)
        return header, file.read(columns=names)


def stated(path: str | os.PathLike[str], data: bytes) -> tuple[Domain, int]:
    """Return the domain of a file and its number of nodes, without reading the nodes."""
    with _damage(path):
        file, _, domain = _opened(path, data)
        return domain, file.metadata.num_rows


@contextlib.contextmanager
def _damage(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raise ``Damaged`` for any error while a file is read."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError):
        raise Damaged(f"{path} does not contain a valid release. Ask for it again.") from None


def _opened(path: str | os.PathLike[str], data: bytes) -> tuple[pq.ParquetFile, dict[str, Any], Domain]:
    """Open a file and check its header against the number of rows, without reading the rows."""
    if not data.startswith(b"PAR1"):
        raise ReleaseFileError(f"{path} is not a veilmap release: it is not a Parquet file.")
    if not data.endswith(b"PAR1"):
        raise Damaged(f"{path} is truncated. Ask for it again.")
    _must_be_unaltered(path, data)
    must_be_within_limits(data, MAX_NODES_PER_BYTE * len(data), MAX_BYTES_PER_VALUE, MAX_BYTES_PER_COLUMN)
    limits = {"thrift_string_size_limit": min(len(data), 2**31 - 1), "thrift_container_size_limit": MAX_ROW_GROUPS}
    file = pq.ParquetFile(pa.BufferReader(data), **limits)
    header = _header(path, (file.metadata.metadata or {})[HEADER_KEY])
    domain = Domain.from_json(header["domain"])
    _stated_tree(header["tree"], domain)
    _must_fit(file.metadata.num_rows, len(data), header["tree"], domain)
    return file, header, domain


def _must_fit(rows: int, size: int, record: Mapping[str, Any], domain: Domain) -> None:
    """Check the number of rows against the header and the size of the file, before any row is read."""
    if rows != record["nodes"]:
        raise Damaged("The rows of the release file do not match its header. Ask for it again.")
    max_per_byte = MAX_BOX_NODES_PER_BYTE if record.get("curve") is None else MAX_CURVE_NODES_PER_BYTE
    if domain.dimensions <= 2 and rows > max_per_byte * size:
        raise ValueError("The file has too many rows for its size.")


def _named_columns(file: pq.ParquetFile, record: Mapping[str, Any], domain: Domain) -> list[str]:
    """Return the names of the columns that make a release. No other column is read (docs/format.md)."""
    number = pa.float64()
    wanted = {"noisy_count": pa.int64(), "noise_variance": number, "estimate": number, "subtree_variance": number}
    optional = {"unevenness": number, **{f"{name}_slope": number for name in domain.names}}
    if record["splits"] is None:
        wanted |= {"parent": pa.int64(), "level": pa.int16()}
        if record.get("curve") is not None:
            wanted |= {"key_from": pa.int64(), "key_to": pa.int64()}
        elif domain.dimensions == 2:
            wanted["bbox"] = _BOX
        else:
            wanted |= {f"{name}_{end}": number for name in domain.names for end in ("low", "high")}
    schema = file.schema_arrow
    wanted |= {name: kind for name, kind in optional.items() if name in schema.names}
    if any(schema.field(name).type != kind for name, kind in wanted.items()):
        raise ValueError("A column has the wrong type.")
    _must_be_plain(file.schema, list(wanted))
    return list(wanted)


def _must_be_plain(schema: pq.ParquetSchema, wanted: list[str]) -> None:
    """Refuse nested columns under a wanted name: pyarrow would read them too, and they might be large."""
    if len(schema) > MAX_COLUMNS:
        raise ValueError("The file has too many columns.")
    paths = [schema.column(k).path for k in range(len(schema))]
    meant = sum(any(path == name or path.startswith(f"{name}.") for name in wanted) for path in paths)
    if meant != len(wanted) + 3 * wanted.count("bbox"):
        raise ValueError("The file has unexpected columns.")


def _must_be_in_order(file: pq.ParquetFile) -> None:
    """Check that parents and levels form a tree, one batch at a time, before other columns are read."""
    above = depth = node = 0
    for batch in file.iter_batches(ROWS_PER_BATCH, columns=["parent", "level"]):
        parents, level = batch["parent"], batch["level"].to_numpy().astype(np.int64)  # no nulls
        parent = parents.slice(1).to_numpy() if node == 0 else parents.to_numpy()
        places = np.arange(node + len(level) - len(parent), node + len(level))
        steps = np.diff(level, prepend=depth)
        if (
            (node == 0 and (level[0] != 0 or parents[0].is_valid))
            or np.any((parent < np.concatenate([[above], parent[:-1]])) | (parent >= places))
            or np.any((steps < 0) | (steps > 1))
        ):
            raise Damaged("The rows of the release file do not form a tree. Ask for it again.")
        above, depth, node = int(parent[-1]) if len(parent) else 0, int(level[-1]), node + len(level)


def _must_have_noise(path: str | os.PathLike[str], file: pq.ParquetFile, header: Mapping[str, Any]) -> None:
    """Check the price of each count of a private file, one batch at a time, before other columns are read."""
    try:
        privacy, noise = Privacy.from_json(header["privacy"]), Noise(header["method"]["noise"])
        rows = privacy.rows_per_unit if privacy.private else 1
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
        raise Damaged(f"The header of {path} is not valid. Ask for the file again.") from None
    if not privacy.private:
        return
    for batch in file.iter_batches(ROWS_PER_BATCH, columns=["noise_variance"]):
        variance = batch["noise_variance"].drop_null().to_numpy()
        least = np.abs(variance[variance <= MAX_VARIANCE]).min(initial=MAX_VARIANCE)  # larger ones are refused later
        must_be_worth(path, privacy, noise, float(count_prices(np.array([least]), noise, rows)[0]))


def _must_be_unaltered(path: str | os.PathLike[str], data: bytes) -> None:
    """Check the checksum of a file."""
    stated = _stated_digest(data)
    if stated is None:
        raise ReleaseFileError(
            f"{path} has no veilmap checksum: it is another kind of Parquet file, or a release that another program "
            f"has rewritten. Ask for the original, or make a release with 'veilmap release'."
        )
    view, digest = memoryview(data), hashlib.sha256()
    for part in (view[: stated.start(1)], BLANK_DIGEST, view[stated.end(1) :]):
        digest.update(part)
    if digest.hexdigest().encode() != stated[1]:
        raise Damaged(f"{path} was changed after it was written: its checksum does not match. Ask for it again.")


def _header(path: str | os.PathLike[str], text: bytes) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(text, parse_constant=_number, parse_float=_number)
    version = header["format"]
    if type(version) is not int or not 1 <= version < 10**6:
        raise ValueError("The format must be a whole number.")
    if version > FORMAT_VERSION:
        raise NewerVersion(
            f"{path} has format {version}; this veilmap reads up to {FORMAT_VERSION}: pip install --upgrade veilmap."
        )
    return header


def _number(text: str) -> float:
    """Read a finite number from JSON."""
    if not math.isfinite(number := float(text)):
        raise ValueError("A number is not finite.")
    return number


def estimates_from(header: Mapping[str, Any], table: pa.Table, domain: Domain, consistent: bool) -> NodeEstimates:
    """Build the estimates of a release from its header and columns."""
    tree = _tree(header["tree"], table, domain)
    if (table.num_rows, tree.height) != (tree.size, header["tree"]["height"]):
        raise Damaged("The rows of the release file do not match its header. Ask for it again.")
    needed = np.ones(tree.size, np.bool_) if consistent else tree.is_leaf  # other nodes may have only a noisy count
    return NodeEstimates(
        tree,
        pc.fill_null(table["noisy_count"], 0).to_numpy().astype(np.int64),
        np.abs(_numbers(table["noise_variance"], np.inf, 0, MAX_VARIANCE)),  # a negative zero becomes 0
        _numbers(table["estimate"], np.nan, -MAX_ABSOLUTE_ESTIMATE, MAX_ABSOLUTE_ESTIMATE, needed),
        _numbers(table["subtree_variance"], np.inf, 0, MAX_VARIANCE, needed),
        _slopes(table, domain, tree),
        _unevenness(table, tree),
        borders=_borders(header.get("borders"), domain),
    )


def _numbers(column: pa.ChunkedArray, absent: float, least: float, most: float, needed: Flags | None = None) -> Floats:
    """Return a column with ``absent`` for nulls. Refuse values out of range, and nulls where they are needed."""
    null = column.is_null().to_numpy()
    values: Floats = pc.fill_null(column, least).to_numpy()
    if not np.all((values >= least) & (values <= most)) or (needed is not None and np.any(null & needed)):
        raise Damaged("The nodes of the release file have impossible values. Ask for it again.")
    return np.where(null, absent, values)


def _slopes(table: pa.Table, domain: Domain, tree: Tree) -> Floats | None:
    """Return the slopes of the leaves. Files of format 1 have none."""
    names = [f"{name}_slope" for name in domain.names]
    if not any(name in table.column_names for name in names):
        return None
    return np.stack(
        [_of_leaves(table[name], tree, -MAX_ABSOLUTE_ESTIMATE, MAX_ABSOLUTE_ESTIMATE) for name in names], axis=1
    )


def _unevenness(table: pa.Table, tree: Tree) -> Floats | None:
    return _of_leaves(table["unevenness"], tree, 0, MAX_VARIANCE) if "unevenness" in table.column_names else None


def borders_header(borders: Borders | None) -> dict[str, Any] | None:
    """Return the calibration of borders as it is stored in the header."""
    return None if borders is None else {"across": list(borders.across), "growth": borders.growth}


def _borders(record: Mapping[str, Any] | None, domain: Domain) -> Borders | None:
    if record is None:
        return None
    across, growth = tuple(map(float, record["across"])), float(record["growth"])
    if len(across) != domain.dimensions or not all(0 < x < 1e9 for x in across) or not abs(growth) < 10:
        raise Damaged("The header of the release file has impossible borders. Ask for it again.")
    return Borders(across, growth)


def _of_leaves(column: pa.ChunkedArray, tree: Tree, least: float, most: float) -> Floats:
    """Return the values of a column that only leaves have, with 0 for other nodes."""
    null = pa.scalar(None, pa.float64())
    return _numbers(pc.if_else(pa.array(tree.is_leaf), column, null), 0, least, most, tree.is_leaf)


def tree_header(tree: Tree) -> dict[str, Any]:
    """Return the description of a tree for the header."""
    return {
        "nodes": tree.size,
        "height": tree.height,
        "splits": [list(parts) for parts in tree.splits] if isinstance(tree, RegularTree) else None,
        "curve": {"kind": "hilbert", "order": tree.order} if isinstance(tree, CurveTree) else None,
    }


def _stated_tree(record: Mapping[str, Any], domain: Domain) -> RegularTree | None:
    """Return the regular tree that a header describes, or None if the tree is in the rows. Check its numbers."""
    nodes, height = record["nodes"], record["height"]
    if type(nodes) is not int or nodes < 1 or type(height) is not int or not 0 <= height < MAX_TREE_LEVELS:
        raise Damaged("The header of the release file does not describe a tree. Ask for it again.")
    if record["splits"] is None:
        return None
    splits = tuple(tuple(parts) for parts in record["splits"])
    cuts = [n for parts in splits for n in parts]
    if any(len(parts) != domain.dimensions for parts in splits) or any(type(n) is not int or n < 1 for n in cuts):
        raise Damaged("The header of the release file does not describe a tree. Ask for it again.")
    if len(splits) >= MAX_TREE_LEVELS or max(cuts, default=1) > domain.side:
        raise Damaged("The header of the release file describes a tree that is too deep. Ask for it again.")
    tree = RegularTree(domain.side, domain.dimensions, splits)
    if max(tree.grid(tree.height)) > domain.side:
        raise Damaged("The header of the release file describes a tree that is too deep. Ask for it again.")
    if (tree.size, tree.height) != (nodes, height):
        raise Damaged("The header of the release file contradicts its tree. Ask for it again.")
    return tree


def _tree(record: Mapping[str, Any], table: pa.Table, domain: Domain) -> Tree:
    if (regular := _stated_tree(record, domain)) is not None:
        return regular
    curve = record.get("curve")
    if curve is None:
        box = [_edge_columns(table, name, k) for k, name in enumerate(domain.names)]
        lo = np.stack([_cells(domain, a, low) for a, (low, _) in enumerate(box)], axis=1)
        hi = np.stack([_cells(domain, a, high) for a, (_, high) in enumerate(box)], axis=1)
        return _cut_tree(table, lo, hi, domain.side)
    order = curve["order"]
    if curve["kind"] != "hilbert" or type(order) is not int or not 1 <= order <= domain.bits or domain.dimensions < 2:
        raise Damaged("The header of the release file does not describe a curve. Ask for it again.")
    lo, hi = (_whole(table[name])[:, None] for name in ("key_from", "key_to"))
    keys = _cut_tree(table, lo, hi, 1 << (order * domain.dimensions))
    return CurveTree(keys, domain.dimensions, order, domain.bits)


def _cut_tree(table: pa.Table, lo: Ints, hi: Ints, side: int) -> Tree:
    parent, level = _whole(table["parent"][1:]), _whole(table["level"])
    _must_be_a_tree(parent, level, lo, hi, side)
    starts = np.concatenate([[0], np.cumsum(np.bincount(level))])
    return CutTree(lo, hi, np.bincount(parent, minlength=len(level)), tuple(starts.tolist()))


def _whole(column: pa.ChunkedArray) -> Ints:
    if column.null_count:
        raise Damaged("The rows of the release file have missing values in the tree. Ask for it again.")
    whole: Ints = column.to_numpy().astype(np.int64)
    return whole


def _must_be_a_tree(parent: Ints, level: Ints, lo: Ints, hi: Ints, side: int) -> None:
    """Check that nodes form a tree whose children partition their parents: kernels rely on it."""
    child = np.arange(1, len(level))
    volume = np.prod((hi - lo) / side, axis=1)
    sound = (
        level[0] == 0
        and level.max() < MAX_TREE_LEVELS
        and (parent >= 0).all()
        and (parent < child).all()
        and (np.diff(parent) >= 0).all()
        and (level[child] == level[parent] + 1).all()
        and (lo[0] == 0).all()
        and (hi[0] == side).all()
        and (lo <= hi).all()
        and (lo[child] >= lo[parent]).all()
        and (hi[child] <= hi[parent]).all()
        and np.allclose(np.bincount(parent, volume[child], len(level))[parent], volume[parent], rtol=1e-9, atol=0)
    )
    if not sound:
        raise Damaged("The rows of the release file do not form a tree. Ask for it again.")


def _edge_columns(table: pa.Table, name: str, axis: int) -> tuple[Floats, Floats]:
    if "bbox" in table.column_names:
        low, high = (("xmin", "xmax"), ("ymin", "ymax"))[axis]
        return tuple(pc.struct_field(table["bbox"], side).to_numpy() for side in (low, high))
    return table[f"{name}_low"].to_numpy(), table[f"{name}_high"].to_numpy()


def _cells(domain: Domain, axis: int, edges: Floats) -> Ints:
    """Return the cells with these lower edges: the inverse of ``Domain.edges``."""
    with np.errstate(all="ignore"):
        at = np.rint((edges - domain.axes[axis].lo) * domain.scale(axis))
    if not np.all((at >= 0) & (at <= domain.side)):
        raise Damaged("The release file has boxes outside its domain. Ask for it again.")
    return at.astype(np.int64)
