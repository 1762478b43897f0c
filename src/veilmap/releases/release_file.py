"""The release file: one Parquet row a node, GeoParquet 1.1 when there are two axes (docs/format.md).

A file is written whole, without a name where the system can, and then put in its place. Its checksum covers every
byte: it is computed with its own 64 digits set to zero, and then written over them.
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
from veilmap.geography.crs import LON_LAT, projjson
from veilmap.kernels.box_walks import MAX_TREE_LEVELS
from veilmap.method.method import Noise
from veilmap.releases.cost_check import count_prices, must_be_worth
from veilmap.releases.privacy import Privacy
from veilmap.trees import CurveTree, CutTree, RegularTree, Tree

FORMAT = 2
HEADER, CHECKSUM, BLANK = b"veilmap", b"veilmap:checksum", b"0" * 64
_DIGEST = re.compile(CHECKSUM + rb".{1,8}?sha256:([0-9a-f]{64})", re.DOTALL)

_BOX = pa.struct([(side, pa.float64()) for side in ("xmin", "ymin", "xmax", "ymax")])
MOST_COLUMNS = 80  # 8 axes take 33
MOST_ROW_GROUPS = 1 << 16
NODES_A_GROUP = 1 << 18
NODES_A_BYTE, NODES_A_BYTE_OF_A_CURVE, NODES_A_BYTE_OF_A_MAP = 16, 10, 1
"""Of a file, at most. Measured of empty releases with epsilon 100: coarse curves over three axes have up to 10.3, over
two 8.4; other files with one or two axes have up to 0.25, since their boxes do not pack so well."""
ROWS_A_BATCH = 1 << 16
BYTES_A_VALUE, BYTES_A_COLUMN = 128, 1 << 14
"""That the pages of a column unpack to, at most: a polygon takes 97 bytes, a number 12."""
MOST_NUMBER, MOST_VARIANCE = 1e20, 1e50
"""That a node has: beyond any noise, and so far from the end of floats that no sum or product comes near it."""


def node_tables(
    domain: Domain, nodes: NodeEstimates, consistent: bool, most: int = NODES_A_GROUP
) -> Iterator[pa.Table]:
    """One row a node, in level order: what ``Release.nodes`` shows and a file holds, so many nodes at a time."""
    stderr = standard_errors(nodes, consistent)
    for start in range(0, nodes.tree.size, most):
        some = slice(start, min(start + most, nodes.tree.size))
        yield _node_table(domain, nodes, stderr, some)


def _node_table(domain: Domain, nodes: NodeEstimates, stderr: Floats, some: slice) -> pa.Table:
    tree, parent, leaf = nodes.tree, nodes.tree.parent[some], nodes.tree.is_leaf[some]
    estimate, measured = nodes.estimate[some], np.isfinite(nodes.noise_variance[some])
    edges = [[domain.edges(side[some, a], a) for side in (tree.lo, tree.hi)] for a in range(domain.dimensions)]
    columns: dict[str, Any] = {
        "node": np.arange(some.start, some.stop),
        "parent": pa.array(parent, mask=parent < 0),
        "level": tree.node_level[some].astype(np.int16),
        "leaf": leaf,
        "noisy_count": pa.array(nodes.noisy_count[some], mask=~measured),
        "noise_variance": pa.array(nodes.noise_variance[some], mask=~measured),
        "estimate": pa.array(estimate, mask=np.isnan(estimate)),
        "stderr": _finite(stderr[some]),
        "subtree_variance": _finite(nodes.subtree_variance[some]),
    }
    if nodes.slope is not None:
        for k, name in enumerate(domain.names):
            columns[f"{name}_slope"] = pa.array(nodes.slope[some, k], mask=~leaf)
    if nodes.known_unevenness is not None:
        columns["unevenness"] = pa.array(nodes.known_unevenness[some], mask=~leaf)
    if isinstance(tree, CurveTree):
        columns["key_from"], columns["key_to"] = tree.keys.lo[some, 0], tree.keys.hi[some, 0]
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
    """WKB polygons of five corners, counter-clockwise: a header of 13 bytes and ten doubles each."""
    header = np.frombuffer(bytes([1, 3, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0]), np.uint8)
    corners = np.stack([x0, y0, x1, y0, x1, y1, x0, y1, x0, y0], axis=1).astype("<f8")
    body = np.empty((len(corners), 93), np.uint8)
    body[:, :13] = header
    body[:, 13:] = corners.view(np.uint8)
    offsets = np.arange(len(corners) + 1, dtype=np.int32) * 93  # so few corners that 32 bits are enough
    return pa.Array.from_buffers(pa.binary(), len(corners), [None, pa.py_buffer(offsets), pa.py_buffer(body)])


def write(
    path: str | os.PathLike[str],
    tables: Iterable[pa.Table],
    header: Mapping[str, Any],
    domain: Domain,
    overwrite: bool = True,
) -> None:
    """Write a release file, or nothing; each table is a row group, and may be made when its turn comes."""
    keys = {HEADER: json.dumps(header, ensure_ascii=False)}
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
            writer.write_table(table.replace_schema_metadata(keys), row_group_size=NODES_A_GROUP)
        writer.add_key_value_metadata({CHECKSUM.decode(): f"sha256:{BLANK.decode()}"})
    data = bytearray(buffer.getbuffer())
    blank = _stated_digest(data)
    assert blank is not None  # noqa: S101
    data[blank.start(1) : blank.end(1)] = hashlib.sha256(data).hexdigest().encode()
    write_atomically(path, data, overwrite)


def is_release(path: str | os.PathLike[str]) -> bool:
    """Whether a file says of itself that it is a release."""
    try:
        data = bytes_of(path)
    except OSError:
        return False
    return data.startswith(b"PAR1") and _stated_digest(data) is not None


def _stated_digest(data: bytes | bytearray) -> re.Match[bytes] | None:
    """Where a file states its checksum: in the footer, the last thing in it."""
    return _DIGEST.match(data, max(data.rfind(CHECKSUM), 0))


def _box_columns(table: pa.Table) -> list[str]:
    flat = [name for name in table.column_names if name.endswith(("_low", "_high"))]
    return flat + ["bbox.xmin", "bbox.ymin", "bbox.xmax", "bbox.ymax"] * ("bbox" in table.column_names)


def geoparquet(domain: Domain) -> dict[str, Any]:
    """The ``geo`` key of a file with two axes; refuses a coordinate system that nobody knows."""
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
    elif domain.crs not in LON_LAT:
        geometry["crs"] = projjson(domain.crs)
    return {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": geometry}}


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], pa.Table]:
    """The header and the columns of a release file that a release needs, once they are known to be sound."""
    try:
        data = bytes_of(path)
    except OSError as error:
        raise ReleaseFileError(f"Cannot read {path}: {error.strerror}.") from None
    return parsed(path, data)


def bytes_of(path: str | os.PathLike[str]) -> bytes:
    """All of a file. Pipes and devices may have no end, and are refused."""
    place = Path(path)
    if place.exists() and not (place.is_file() or place.is_dir()):
        raise OSError(errno.EINVAL, "it is a pipe or a device, and a release is a file")
    return place.read_bytes()


def parsed(path: str | os.PathLike[str], data: bytes) -> tuple[dict[str, Any], pa.Table]:
    """The same of a file's bytes. Anyone can write one with a checksum that fits: nothing is taken for granted."""
    with _damage(path):
        file, header, domain = _opened(path, data)
        names = _named_columns(file, header["tree"], domain)
        _must_have_noise(path, file, header)
        if header["tree"]["splits"] is None:
            _must_be_in_order(file)
        return header, file.read(columns=names)


def stated(path: str | os.PathLike[str], data: bytes) -> tuple[Domain, int]:
    """Return the domain of a file and how many nodes it has, before any of them is read."""
    with _damage(path):
        file, _, domain = _opened(path, data)
        return domain, file.metadata.num_rows


@contextlib.contextmanager
def _damage(path: str | os.PathLike[str]) -> Iterator[None]:
    """Say in one sentence that a file is not sound, whatever it is that breaks."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError, ArithmeticError, RecursionError):
        raise Damaged(f"{path} does not hold what a release must: ask for it again.") from None


def _opened(path: str | os.PathLike[str], data: bytes) -> tuple[pq.ParquetFile, dict[str, Any], Domain]:
    """Return a file whose header agrees with itself and with the number of rows; none of these is read."""
    if not data.startswith(b"PAR1"):
        raise ReleaseFileError(f"{path} is not a veilmap release: it is not even a Parquet file.")
    if not data.endswith(b"PAR1"):
        raise Damaged(f"{path} is cut short: ask for it again.")
    _must_be_unaltered(path, data)
    must_be_within_limits(data, NODES_A_BYTE * len(data), BYTES_A_VALUE, BYTES_A_COLUMN)
    limits = {"thrift_string_size_limit": min(len(data), 2**31 - 1), "thrift_container_size_limit": MOST_ROW_GROUPS}
    file = pq.ParquetFile(pa.BufferReader(data), **limits)
    header = _header(path, (file.metadata.metadata or {})[HEADER])
    domain = Domain.from_json(header["domain"])
    _stated_tree(header["tree"], domain)
    _must_fit(file.metadata.num_rows, len(data), header["tree"], domain)
    return file, header, domain


def _must_fit(rows: int, size: int, record: Mapping[str, Any], domain: Domain) -> None:
    """Check how many rows a file of so many bytes has, before any of them is read."""
    if rows != record["nodes"]:
        raise Damaged("The rows of the release file do not fit its header: ask for it again.")
    of_a_map = NODES_A_BYTE_OF_A_MAP if record.get("curve") is None else NODES_A_BYTE_OF_A_CURVE
    if domain.dimensions <= 2 and rows > of_a_map * size:
        raise ValueError("A file of this size has fewer rows.")


def _named_columns(file: pq.ParquetFile, record: Mapping[str, Any], domain: Domain) -> list[str]:
    """Names of the columns that a release is made of: no other is read, whatever it holds (docs/format.md)."""
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
        raise ValueError("A release has columns of other types.")
    _must_be_plain(file.schema, list(wanted))
    return list(wanted)


def _must_be_plain(schema: pq.ParquetSchema, wanted: list[str]) -> None:
    """Names go by their beginning: another column of that name would be read too, and might be long texts."""
    if len(schema) > MOST_COLUMNS:
        raise ValueError("A release has fewer columns.")
    paths = [schema.column(k).path for k in range(len(schema))]
    meant = sum(any(path == name or path.startswith(f"{name}.") for name in wanted) for path in paths)
    if meant != len(wanted) + 3 * wanted.count("bbox"):
        raise ValueError("A release has other columns.")


def _must_be_in_order(file: pq.ParquetFile) -> None:
    """Check that parents and levels may be those of a tree, a few rows at a time, before more is read."""
    above = depth = node = 0
    for batch in file.iter_batches(ROWS_A_BATCH, columns=["parent", "level"]):
        parents, level = batch["parent"], batch["level"].to_numpy().astype(np.int64)  # no nulls
        parent = parents.slice(1).to_numpy() if node == 0 else parents.to_numpy()
        places = np.arange(node + len(level) - len(parent), node + len(level))
        steps = np.diff(level, prepend=depth)
        if (
            (node == 0 and (level[0] != 0 or parents[0].is_valid))
            or np.any((parent < np.concatenate([[above], parent[:-1]])) | (parent >= places))
            or np.any((steps < 0) | (steps > 1))
        ):
            raise Damaged("The rows of the release file do not make a tree: ask for it again.")
        above, depth, node = int(parent[-1]) if len(parent) else 0, int(level[-1]), node + len(level)


def _must_have_noise(path: str | os.PathLike[str], file: pq.ParquetFile, header: Mapping[str, Any]) -> None:
    """Check of each count of a private file what it costs, a few rows at a time, before more is read."""
    try:
        privacy, noise = Privacy.from_json(header["privacy"]), Noise(header["method"]["noise"])
        rows = privacy.rows_per_unit if privacy.private else 1
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
        raise Damaged(f"The header of {path} is not valid. Ask for the file again.") from None
    if not privacy.private:
        return
    for batch in file.iter_batches(ROWS_A_BATCH, columns=["noise_variance"]):
        variance = batch["noise_variance"].drop_null().to_numpy()
        least = np.abs(variance[variance <= MOST_VARIANCE]).min(initial=MOST_VARIANCE)  # others are refused later
        must_be_worth(path, privacy, noise, float(count_prices(np.array([least]), noise, rows)[0]))


def _must_be_unaltered(path: str | os.PathLike[str], data: bytes) -> None:
    """Before anything in the file is believed."""
    stated = _stated_digest(data)
    if stated is None:
        raise ReleaseFileError(
            f"{path} has no veilmap checksum: it is another kind of Parquet file, or a release that some other "
            f"program wrote anew. Ask for the original, or make a release with 'veilmap release'."
        )
    view, digest = memoryview(data), hashlib.sha256()
    for part in (view[: stated.start(1)], BLANK, view[stated.end(1) :]):
        digest.update(part)
    if digest.hexdigest().encode() != stated[1]:
        raise Damaged(f"{path} was altered after it was written: its checksum does not fit. Ask for it again.")


def _header(path: str | os.PathLike[str], text: bytes) -> dict[str, Any]:
    header: dict[str, Any] = json.loads(text, parse_constant=_number, parse_float=_number)
    version = header["format"]
    if type(version) is not int or not 1 <= version < 10**6:
        raise ValueError("A format has a number.")
    if version > FORMAT:
        raise NewerVersion(
            f"{path} has format {version}; this veilmap reads up to {FORMAT}: pip install --upgrade veilmap."
        )
    return header


def _number(text: str) -> float:
    """JSON has finite numbers only."""
    if not math.isfinite(number := float(text)):
        raise ValueError("A number is not finite.")
    return number


def estimates_from(header: Mapping[str, Any], table: pa.Table, domain: Domain, consistent: bool) -> NodeEstimates:
    """The arrays of a release file."""
    tree = _tree(header["tree"], table, domain)
    if (table.num_rows, tree.height) != (tree.size, header["tree"]["height"]):
        raise Damaged("The rows of the release file do not fit its header: ask for it again.")
    needed = np.ones(tree.size, np.bool_) if consistent else tree.is_leaf  # of other nodes, noisy counts may be all
    return NodeEstimates(
        tree,
        pc.fill_null(table["noisy_count"], 0).to_numpy().astype(np.int64),
        np.abs(_numbers(table["noise_variance"], np.inf, 0, MOST_VARIANCE)),  # a negative zero is no variance
        _numbers(table["estimate"], np.nan, -MOST_NUMBER, MOST_NUMBER, needed),
        _numbers(table["subtree_variance"], np.inf, 0, MOST_VARIANCE, needed),
        _slopes(table, domain, tree),
        _unevenness(table, tree),
        borders=_borders(header.get("borders"), domain),
    )


def _numbers(column: pa.ChunkedArray, absent: float, least: float, most: float, needed: Flags | None = None) -> Floats:
    """Of each node, a number that can be, or ``absent`` where it is null; but not of nodes that need one."""
    null = column.is_null().to_numpy()
    values: Floats = pc.fill_null(column, least).to_numpy()
    if not np.all((values >= least) & (values <= most)) or (needed is not None and np.any(null & needed)):
        raise Damaged("The nodes of the release file have numbers that cannot be: ask for it again.")
    return np.where(null, absent, values)


def _slopes(table: pa.Table, domain: Domain, tree: Tree) -> Floats | None:
    """Format 1 has none."""
    names = [f"{name}_slope" for name in domain.names]
    if not any(name in table.column_names for name in names):
        return None
    return np.stack([_of_leaves(table[name], tree, -MOST_NUMBER, MOST_NUMBER) for name in names], axis=1)


def _unevenness(table: pa.Table, tree: Tree) -> Floats | None:
    return _of_leaves(table["unevenness"], tree, 0, MOST_VARIANCE) if "unevenness" in table.column_names else None


def borders_header(borders: Borders | None) -> dict[str, Any] | None:
    return None if borders is None else {"across": list(borders.across), "growth": borders.growth}


def _borders(record: Mapping[str, Any] | None, domain: Domain) -> Borders | None:
    if record is None:
        return None
    across, growth = tuple(map(float, record["across"])), float(record["growth"])
    if len(across) != domain.dimensions or not all(0 < x < 1e9 for x in across) or not abs(growth) < 10:
        raise Damaged("The header of the release file has borders that cannot be: ask for it again.")
    return Borders(across, growth)


def _of_leaves(column: pa.ChunkedArray, tree: Tree, least: float, most: float) -> Floats:
    """Numbers that leaves have, and other nodes do not: 0 there."""
    null = pa.scalar(None, pa.float64())
    return _numbers(pc.if_else(pa.array(tree.is_leaf), column, null), 0, least, most, tree.is_leaf)


def tree_header(tree: Tree) -> dict[str, Any]:
    return {
        "nodes": tree.size,
        "height": tree.height,
        "splits": [list(parts) for parts in tree.splits] if isinstance(tree, RegularTree) else None,
        "curve": {"kind": "hilbert", "order": tree.order} if isinstance(tree, CurveTree) else None,
    }


def _stated_tree(record: Mapping[str, Any], domain: Domain) -> RegularTree | None:
    """Return the tree that follows from a header; None where it is in the rows. Its numbers must agree."""
    nodes, height = record["nodes"], record["height"]
    if type(nodes) is not int or nodes < 1 or type(height) is not int or not 0 <= height < MAX_TREE_LEVELS:
        raise Damaged("The header of the release file does not describe a tree: ask for it again.")
    if record["splits"] is None:
        return None
    splits = tuple(tuple(parts) for parts in record["splits"])
    cuts = [n for parts in splits for n in parts]
    if any(len(parts) != domain.dimensions for parts in splits) or any(type(n) is not int or n < 1 for n in cuts):
        raise Damaged("The header of the release file does not describe a tree: ask for it again.")
    if len(splits) >= MAX_TREE_LEVELS or max(cuts, default=1) > domain.side:
        raise Damaged("The header of the release file describes too deep a tree: ask for it again.")
    tree = RegularTree(domain.side, domain.dimensions, splits)
    if max(tree.grid(tree.height)) > domain.side:
        raise Damaged("The header of the release file describes too deep a tree: ask for it again.")
    if (tree.size, tree.height) != (nodes, height):
        raise Damaged("The header of the release file states other numbers than its tree has: ask for it again.")
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
        raise Damaged("The header of the release file does not describe a curve: ask for it again.")
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
        raise Damaged("The rows of the release file have gaps where no tree has any: ask for it again.")
    whole: Ints = column.to_numpy().astype(np.int64)
    return whole


def _must_be_a_tree(parent: Ints, level: Ints, lo: Ints, hi: Ints, side: int) -> None:
    """Anyone can write a file with a checksum that fits: what is walked later is checked here."""
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
        raise Damaged("The rows of the release file do not make a tree: ask for it again.")


def _edge_columns(table: pa.Table, name: str, axis: int) -> tuple[Floats, Floats]:
    if "bbox" in table.column_names:
        low, high = (("xmin", "xmax"), ("ymin", "ymax"))[axis]
        return tuple(pc.struct_field(table["bbox"], side).to_numpy() for side in (low, high))
    return table[f"{name}_low"].to_numpy(), table[f"{name}_high"].to_numpy()


def _cells(domain: Domain, axis: int, edges: Floats) -> Ints:
    """The cells whose lower edges these are: the inverse of ``Domain.edges``."""
    with np.errstate(all="ignore"):
        at = np.rint((edges - domain.axes[axis].lo) * domain.scale(axis))
    if not np.all((at >= 0) & (at <= domain.side)):
        raise Damaged("The release file has boxes outside its domain: ask for it again.")
    return at.astype(np.int64)
