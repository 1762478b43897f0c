"""After a release, nothing that anyone can reach holds a raw coordinate or an exact count.

The points have coordinates that nothing else has, the nodes have exact counts that nothing else has, and the
noise is so wide (and fixed) that no noisy count is equal to an exact one by chance.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import io
import json
import logging
import multiprocessing
import pickle
import pkgutil
import re
import struct
import sys
import types
import warnings
import weakref
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

import veilmap as vm
from veilmap.errors import VeilmapError
from veilmap.structures import Gate, Structure
from veilmap.testing import fixed_entropy
from veilmap.vault import Sealed, measure, noise_models, seal

DOMAIN = vm.Domain({"lon": (-8.0, 8.0), "lat": (32.0, 48.0)}, bits=2)  # 4 by 4 cells at the finest
EPSILON = "0.00001"  # noise of some hundred thousands, on counts of a few thousands
LEAF_COUNTS = (1009, 1499, 1867, 2053, 2371, 2749, 3089, 3467, 3851, 4219, 4621, 5003, 5431, 5839, 6229, 6661)


def make_points() -> NDArray[np.float64]:
    """Return points with unique digits: a prime number of them in each of the 16 cells."""
    random = np.random.default_rng(11)
    rows = []
    for cell, n in enumerate(LEAF_COUNTS):
        corner = np.array([-8.0 + 4 * (cell % 4), 32.0 + 4 * (cell // 4)])
        rows.append(corner + 0.01 + 3.9 * random.random((n, 2)))
    return random.permutation(np.concatenate(rows))


def exact_counts() -> set[int]:
    grid = np.array(LEAF_COUNTS).reshape(4, 4)
    quarters = grid.reshape(2, 2, 2, 2).sum(axis=(1, 3))
    return {*LEAF_COUNTS, *quarters.ravel().tolist(), int(grid.sum())}


class Watch:
    """Searches any object for the secrets: coordinates and exact counts."""

    def __init__(self, points: NDArray[np.float64]) -> None:
        self.points = points
        self.counts = exact_counts()
        self.values = {float(x) for x in points.ravel()} | {float(np.float32(x)) for x in points.ravel()}
        self._sorted_values = np.array(sorted(self.values))
        self._sorted_counts = np.array(sorted(self.counts))
        # Text shows a coordinate by its first seven decimals: fewer are shared by chance. Eight bytes show all of it.
        self.texts = {f"{abs(x):.9f}"[:-2] for x in points.ravel().tolist()}
        self.patterns = {struct.pack(f, x) for x in points[::7].ravel().tolist() for f in ("<d", ">d")}
        self.patterns |= {struct.pack("<q", n) for n in self.counts}
        self._number = re.compile(r"\d+(?:\.\d+)?")
        # digits of a checksum are not numbers: about one file in twenty would contain a "count" by chance
        self._checksum = re.compile(r"sha256:[0-9a-f]{64}\b")

    def in_array(self, array: NDArray[Any]) -> str | None:
        if array.dtype.kind in "iu" and np.isin(array, self._sorted_counts).any():
            return "an exact count in an array"
        if array.dtype.kind == "f" and array.size:
            flat = array.astype(np.float64).ravel()
            if np.isin(flat, self._sorted_counts).any():
                return "an exact count in an array of floats"
            if np.isin(flat, self._sorted_values).any():
                return "a coordinate in an array"
        return self.in_bytes(array.tobytes()) if array.dtype.kind in "SV" else None

    def in_text(self, text: str) -> str | None:
        plain = self._checksum.sub("", text.replace(",", "").replace("_", ""))
        for number in self._number.findall(plain):
            whole, _, decimals = number.partition(".")
            if len(decimals) >= 7 and f"{whole}.{decimals[:7]}" in self.texts:
                return f"a coordinate in a text: {text[:80]!r}"
            if not decimals.strip("0") and len(whole) < 10 and int(whole) in self.counts:
                return f"an exact count in a text: {text[:80]!r}"
        return None

    def in_bytes(self, data: bytes) -> str | None:
        # every window of eight bytes, at once
        if len(data) < 8:
            return None
        windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), 8)
        seen = np.ascontiguousarray(windows).view("<u8").ravel()
        wanted = np.array([int.from_bytes(p, "little") for p in self.patterns], np.uint64)
        hit = np.isin(seen, wanted)
        return f"a raw number in bytes at {int(np.argmax(hit))}" if hit.any() else None

    def in_scalar(self, value: Any) -> str | None:
        if isinstance(value, (bool, np.bool_)):
            return None
        if isinstance(value, (int, np.integer)) and int(value) in self.counts:
            return f"the exact count {int(value)}"
        if isinstance(value, (float, np.floating, Fraction, Decimal)):
            if value in self.counts:
                return f"the exact count {value}"
            if float(value) in self.values:
                return f"the coordinate {value}"
        return None


FOREIGN = (types.ModuleType, types.CodeType, types.FrameType, types.BuiltinFunctionType)


@dataclass
class Walker:
    """Follows every reference: attributes, slots, closures, caches, weak references, buffers."""

    watch: Watch
    found: list[str] = field(default_factory=list)
    seen: dict[int, Any] = field(default_factory=dict)
    steps: int = 0
    opaque: tuple[type, ...] = ()

    def walk(self, start: Any, name: str) -> Walker:
        stack = [(start, name)]
        while stack:
            thing, path = stack.pop()
            if (
                id(thing) in self.seen
                or thing is self.watch
                or thing is self.watch.points
                or isinstance(thing, self.opaque)
            ):
                continue
            self.seen[id(thing)] = thing  # keep it alive, so that no id is used twice
            self.steps += 1
            if secret := self.look(thing):
                self.found.append(f"{path}: {secret}")
            stack += self.beyond(thing, path)
        return self

    def look(self, thing: Any) -> str | None:
        watch = self.watch
        if isinstance(thing, str):
            return watch.in_text(thing)
        if isinstance(thing, (bytes, bytearray, memoryview)):
            return watch.in_bytes(bytes(thing))
        if isinstance(thing, np.ndarray):
            return watch.in_array(thing)
        if isinstance(thing, pa.Buffer):
            return watch.in_bytes(thing.to_pybytes())
        return watch.in_scalar(thing)

    def beyond(self, thing: Any, path: str) -> list[tuple[Any, str]]:  # noqa: PLR0911
        if isinstance(thing, (str, bytes, bytearray, int, float, complex, np.generic, type(None), *FOREIGN)):
            return []
        if isinstance(thing, np.ndarray):
            items = [(thing.base, f"{path}.base")]
            return items + ([(list(thing.ravel()), f"{path}[]")] if thing.dtype.kind == "O" else [])
        if isinstance(thing, (pa.Table, pa.RecordBatch)):
            columns = [(thing.column(c), f"{path}[{c!r}]") for c in thing.column_names]
            return [*columns, (dict(thing.schema.metadata or {}), f"{path}.metadata")]
        if isinstance(thing, (pa.Array, pa.ChunkedArray)):
            chunks = thing.chunks if isinstance(thing, pa.ChunkedArray) else [thing]
            buffers = [(b, f"{path}.buffer") for chunk in chunks for b in chunk.buffers() if b is not None]
            return [*buffers, (thing.to_pylist(), f"{path}.values")]
        if isinstance(thing, weakref.ref):
            return [(thing(), f"{path}()")]
        if isinstance(thing, type):
            return [(dict(vars(thing)), path)] if ours(thing.__module__) else []
        if isinstance(thing, types.FunctionType):
            cells = [(c.cell_contents, f"{path} closure") for c in thing.__closure__ or () if filled(c)]
            return [*cells, (thing.__defaults__, path), (thing.__kwdefaults__, path), (vars(thing), path)]
        module = getattr(type(thing), "__module__", "")
        if not ours(module) and module.partition(".")[0] not in PLAIN:
            return []  # numba's dispatchers, loggers and locks: they have seen types, not points
        items = [(value, f"{path} → {label(thing, value)}") for value in gc.get_referents(thing)]
        slots = [s for kind in type(thing).__mro__ for s in getattr(kind, "__slots__", ())] if ours(module) else []
        items += [(getattr(thing, s), f"{path}.{s}") for s in slots if isinstance(s, str) and hasattr(thing, s)]
        return items + ([(vars(thing), path)] if hasattr(thing, "__dict__") else [])


PLAIN = {"builtins", "collections", "functools", "fractions", "decimal", "types", "enum", "pathlib", "_contextvars"}


def ours(module: Any) -> bool:
    return isinstance(module, str) and (module == "veilmap" or module.startswith("veilmap.") or module == __name__)


def filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def label(thing: Any, value: Any) -> str:
    if isinstance(thing, dict):
        return next((repr(k)[:40] for k, v in thing.items() if v is value), "key")
    return type(value).__name__


@pytest.fixture(scope="module")
def points() -> NDArray[np.float64]:
    return make_points()


@pytest.fixture(scope="module")
def watch(points: NDArray[np.float64]) -> Watch:
    return Watch(points)


def publish(points: object, **how: Any) -> vm.Release:
    with fixed_entropy(4):
        return vm.release(points, DOMAIN, EPSILON, **how)


@dataclass(frozen=True)
class Probing(Structure):
    """Measures roughness, as `best` does for many rows, but with noise as wide as in the other cases."""

    height = None

    def nodes(self, dimensions: int) -> None:
        return None

    def grow(self, gate: Gate, epsilon: Fraction, budget: object) -> None:
        gate.split(np.array([[2, 2]]))
        gate.roughness(np.zeros(4, np.int64), 1, epsilon / 2)
        gate.count(1, epsilon / 2)


WAYS: dict[str, dict[str, Any]] = {
    "best": {},
    "a probe": {"method": vm.Method(structure=Probing(), name="probing")},
    "chosen height": {"method": "quad-opt"},
    "height 2": {"method": "quad-opt", "height": 2},
    "height 0": {"method": "quad-opt", "height": 0},
    "noisy counts": {"method": "quad-baseline", "height": 2},
    "pruned": {"method": "quad-opt", "height": 2, "prune": 32},
    "unmeasured levels": {"method": vm.Method(structure=vm.Quadtree(2), budget=vm.Levels([0, 0, 1]))},
    "medians": {"method": "kd-standard", "height": 2},
    "medians of a sample": {"method": "kd-noisymean", "height": 2, "sample": "0.5"},
    "curve": {"method": "hilbert-r", "height": 1},
    "noisy grid": {"method": "kd-cell", "height": 2},
    "adaptive grid": {"method": "adaptive-grid"},
    "privtree": {"method": "privtree"},
    "gaussian": {"method": "quad-opt", "height": 2, "noise": "discrete-gaussian", "delta": "1e-9"},
    "people": {"method": "kd-hybrid", "height": 2, "unit": np.arange(sum(LEAF_COUNTS)) // 7, "max_rows_per_unit": 7},
}
WHOLE = [[-8.0, 32.0, 8.0, 48.0], [-7.5, 33.0, 1.25, 47.0]]


def use(release: vm.Release) -> list[Any]:
    """Call everything that a release offers, so that every cache is filled."""
    return [
        release.count(WHOLE),
        release.nodes,
        repr(release),
        str(release),
        release.height,
        release.privacy.statement(),
        release.integers(),
    ]


# --- the walk ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_no_object_of_a_release_holds_a_secret(points: NDArray[np.float64], watch: Watch, way: str) -> None:
    release = publish(points, **WAYS[way])
    used = use(release)
    walker = Walker(watch).walk(release, "release").walk(used, "answers")
    for name in dir(release):
        if not name.startswith("__"):
            walker.walk(getattr(release, name), f"release.{name}")
    assert walker.found == []
    assert walker.steps > 100


def test_no_module_of_veilmap_remembers_a_secret() -> None:
    """Run in a separate process: searching what other tests leave in modules would take minutes."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
        found, steps = fresh.submit(remembered).result()
    assert found == []
    assert steps > 1000


def remembered() -> tuple[list[str], int]:
    """Only what was added is searched: a map of the world, for example, may equal a secret by chance."""
    for module in pkgutil.walk_packages(vm.__path__, "veilmap."):
        importlib.import_module(module.name)
    points = make_points()
    watch = Watch(points)
    before = set(in_modules(watch).found)
    use(publish(points))
    walker = in_modules(watch)
    return [one for one in walker.found if one not in before], walker.steps


def in_modules(watch: Watch) -> Walker:
    walker = Walker(watch)
    modules = [name for name in sys.modules if ours(name) and name != __name__]
    assert "veilmap.vault.mechanisms.laplace" in modules
    for name in modules:
        walker.walk(dict(vars(sys.modules[name])), name)
    return walker


def test_nothing_keeps_the_points_alive() -> None:
    mine = make_points()
    gone = weakref.ref(mine)
    release = publish(mine)
    use(release)
    del mine
    gc.collect()
    assert gone() is None
    assert release.count(WHOLE) is not None


def test_pickle_holds_no_secret(points: NDArray[np.float64], watch: Watch) -> None:
    release = publish(points)
    use(release)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        data = pickle.dumps(release, protocol)
        assert watch.in_bytes(data) is None
        assert Walker(watch).walk(pickle.loads(data), "unpickled").found == []


def test_printed_objects_hold_no_secret(points: NDArray[np.float64], watch: Watch) -> None:
    release = publish(points)
    things = [release, release.privacy, release.method, release.domain, release.estimates, release.estimates.tree]
    with np.printoptions(threshold=sys.maxsize):
        for thing in [*things, *use(release)]:
            for text in (repr(thing), str(thing), f"{thing}"):
                assert watch.in_text(text) is None


@pytest.mark.parametrize("way", WAYS)
def test_saved_file_holds_no_secret(points: NDArray[np.float64], watch: Watch, tmp_path: Path, way: str) -> None:
    path = tmp_path / "release.parquet"
    publish(points, **WAYS[way]).save(path)
    assert list(tmp_path.iterdir()) == [path]
    assert watch.in_bytes(path.read_bytes()) is None
    file = pq.ParquetFile(path)
    walker = Walker(watch).walk(file.read(), "columns")
    walker.walk({k: v.decode() for k, v in file.metadata.metadata.items()}, "file metadata")
    walker.walk(file.metadata.to_dict(), "row groups and statistics")
    walker.walk(json.loads(file.metadata.metadata[b"veilmap"]), "header")
    loaded = vm.load(path)
    walker.walk(loaded, "loaded").walk(use(loaded), "answers")
    assert walker.found == []


# --- the walker can fail ----------------------------------------------------------------------------------------


class Leaky(vm.Release):
    """Return a release with a leak in a place that ``vars`` shows."""


def leak(points: NDArray[np.float64], kind: str) -> vm.Release:
    sound = publish(points, method="quad-opt", height=1)
    release = Leaky(sound.domain, sound.method, sound.privacy, sound.estimates, sound.provenance)
    mine, total = points[:5].copy(), len(points)
    secrets: dict[str, Any] = {
        "array of points": mine,
        "view of points": points[3:4, :0],  # empty, but its base is not
        "float32": mine.astype(np.float32),
        "one coordinate": float(mine[0, 0]),
        "total": total,
        "total as float": np.float64(total),
        "total as fraction": Fraction(total),
        "counts": np.array([0, LEAF_COUNTS[3], 1]),
        "in a list in a dict": {"a": [1, {"b": (2, total)}]},
        "key": {total: 1},
        "closure": lambda: mine,
        "default": functools.partial(max, total),
        "cache": remembering(total),
        "weak reference": weakref.ref(KEPT.setdefault("mine", mine)),
        "text": f"{total} rows read",
        "text with commas": f"{total:,} rows read",
        "coordinate in a text": f"bad row {float(mine[0, 0])!r}",
        "rounded coordinate": f"near {float(mine[1, 1]):.9f}",
        "bytes": b"xyz" + points[:8].tobytes(),
        "table": pa.table({"a": mine[:, 0]}),
        "object array": np.array([None, total], object),
    }
    object.__setattr__(release, "extra", secrets[kind])
    return release


KEPT: dict[str, Any] = {}
LEAKS = """array of points|view of points|float32|one coordinate|total|total as float|total as fraction|counts
in a list in a dict|key|closure|default|cache|weak reference|text|text with commas|coordinate in a text
rounded coordinate|bytes|table|object array"""


def remembering(total: int) -> Any:
    @functools.lru_cache
    def cached(x: int) -> int:
        return total + x

    cached(0)
    return cached


@pytest.mark.parametrize("kind", re.split(r"[|\n]", LEAKS))
def test_walker_finds_a_leak(points: NDArray[np.float64], kind: str) -> None:
    # The walker passes over the watched array itself; a leak is found in copies, views and values of it.
    watch = Watch(points.copy())
    assert Walker(watch).walk(leak(points, kind), "release").found


def test_watch_finds_a_leak_in_a_file(points: NDArray[np.float64], watch: Watch, tmp_path: Path) -> None:
    for column in (pa.array([LEAF_COUNTS[2], 5]), pa.array(points[:3, 0])):
        pq.write_table(pa.table({"a": column}), tmp_path / "leaky.parquet", compression="zstd")
        assert Walker(watch).walk(pq.read_table(tmp_path / "leaky.parquet"), "columns").found


@pytest.mark.parametrize("how", [{}, {"method": "quad-opt", "height": 2}], ids=["best", "quad-opt"])
def test_exact_tree_would_be_found(
    monkeypatch: pytest.MonkeyPatch, points: NDArray[np.float64], watch: Watch, how: dict[str, Any]
) -> None:
    """In a release without noise, every place that could hold a count does, and the walker finds it."""
    monkeypatch.setattr(noise_models, "discrete_laplace", lambda epsilon, n, keys: np.zeros(n, np.int64))
    assert Walker(watch).walk(publish(points, **how), "release").found


# --- what is said on the way ------------------------------------------------------------------------------------


class Everything(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(f"{record.getMessage()} {vars(record)}")


@contextlib.contextmanager
def all_that_is_said() -> Any:
    """Logs of every logger at DEBUG, warnings, standard output and error."""
    handler, out, root = Everything(), io.StringIO(), logging.getLogger()
    quiet = {logger: logger.level for logger in loggers() if logger.level > logging.DEBUG}
    root.addHandler(handler)
    with (
        warnings.catch_warnings(record=True) as warned,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
    ):
        warnings.simplefilter("always")
        for logger in (*quiet, root):
            logger.setLevel(logging.DEBUG)
        try:
            yield lambda: [*handler.records, *(str(w.message) for w in warned), out.getvalue()]
        finally:
            root.removeHandler(handler)
            for logger, level in quiet.items():
                logger.setLevel(level)


def loggers() -> list[logging.Logger]:
    named = [v for v in logging.Logger.manager.loggerDict.values() if isinstance(v, logging.Logger)]
    return [logging.getLogger(), *named]


def as_input(points: NDArray[np.float64], kind: str, folder: Path) -> object:
    table = pa.table({"lon": points[:, 0], "lat": points[:, 1]})
    if kind == "parquet":
        pq.write_table(table, folder / "points.parquet")
        return folder / "points.parquet"
    if kind == "csv":
        pacsv.write_csv(table, folder / "points.csv")
        return folder / "points.csv"
    return {"array": points, "table": table, "list": points.tolist()}[kind]


INPUTS = ["array", "list", "table", "parquet", "csv"]


@pytest.mark.parametrize("kind", INPUTS)
def test_logs_warnings_and_prints_hold_no_secret(
    points: NDArray[np.float64], watch: Watch, tmp_path: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    given = as_input(points, kind, tmp_path)
    use(publish(given))  # numba logs a lot while it compiles, which is not tested here
    with all_that_is_said() as said:
        release = publish(given)
        release.save(tmp_path / "release.parquet")
        use(vm.load(tmp_path / "release.parquet"))
        for line in said():
            assert watch.in_text(line) is None
    assert watch.in_text("".join(capfd.readouterr())) is None


def test_logs_would_be_seen(points: NDArray[np.float64], watch: Watch) -> None:
    with all_that_is_said() as said:
        logging.getLogger("veilmap.anything").debug("%d rows", len(points))
        warnings.warn(f"at {points[0, 0]}", UserWarning, stacklevel=1)
        assert sum(watch.in_text(line) is not None for line in said()) == 2


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(np.array([0x7F800001], np.uint32).view(np.float32), id="signalling NaN"),
        pytest.param(np.array(["1e4000"]).astype(np.longdouble), id="beyond 64 bits"),
        pytest.param(np.array([np.inf, np.nan]), id="infinite"),
        pytest.param(np.array([2**63 - 1]), id="large integer"),
    ],
)
def test_odd_rows_are_dropped_without_a_word(rows: NDArray[Any]) -> None:
    """A warning that only some data causes would reveal something about the data."""
    with all_that_is_said() as said:
        publish(np.stack([rows, rows], axis=1))
        assert [line for line in said() if line] == []


@pytest.mark.parametrize("kind", INPUTS)
def test_progress_is_a_part_and_does_not_depend_on_the_rows_inside(
    points: NDArray[np.float64], tmp_path: Path, kind: str
) -> None:
    seen = []
    for k, rows in enumerate((points, points + 1000.0)):  # all inside the domain, none inside
        (tmp_path / str(k)).mkdir()
        parts: list[float] = []
        publish(as_input(rows, kind, tmp_path / str(k)), progress=parts.append)
        assert all(isinstance(p, float) and 0 <= p <= 1 for p in parts)
        assert parts == sorted(parts)
        assert all(p * 100 == pytest.approx(round(p * 100)) for p in parts)  # whole percents: no row count shows
        seen.append(parts[-1:])
    assert seen[0] == seen[1]  # the number of calls depends on the clock


# --- exceptions -------------------------------------------------------------------------------------------------


def secrets_in(error: BaseException, watch: Watch) -> list[str]:
    """Return what an exception holds: its text, its arguments, its causes, and the open frames of veilmap.

    A frame may hold what the caller handed in; it may not hold counts, or copies of the points.
    """
    walker, chain, passed = Walker(watch, opaque=(Sealed,)), [error], set()
    while chain:
        now = chain.pop()
        if id(now) in passed:
            continue
        passed.add(id(now))
        walker.walk(str(now), "text").walk(repr(now), "repr").walk(list(now.args), "arguments")
        walker.walk(vars(now), "attributes").walk(getattr(now, "__notes__", []), "notes")
        chain += [e for e in (now.__cause__, now.__context__) if e is not None]
        trace = now.__traceback__
        while trace is not None:
            if ours(trace.tb_frame.f_globals.get("__name__")) and trace.tb_frame.f_globals["__name__"] != __name__:
                for name, value in trace.tb_frame.f_locals.items():
                    if name != "points":
                        walker.walk(value, f"{trace.tb_frame.f_code.co_name}: {name}")
            trace = trace.tb_next
    return walker.found


@dataclass(frozen=True)
class FailingEngine:
    """An engine that fails while it reads and quotes a row, as libraries do."""

    points: NDArray[np.float64] = field(repr=False)
    kind: type[BaseException]
    rereadable: bool = True

    def tally(self, domain: object, question: object, progress: object) -> NDArray[np.int64]:
        raise self.kind(f"cannot convert {self.points[0, 0]!r} in row {len(self.points)}")

    def hold(self, domain: object, progress: object) -> list[NDArray[np.int64]]:
        raise self.kind(f"cannot convert {self.points[0, 0]!r} in row {len(self.points)}")

    def rows(self, domain: object, progress: object, choose: object = None) -> tuple[list[NDArray[np.int64]], None]:
        raise self.kind(f"cannot convert {self.points[0, 0]!r} in row {len(self.points)}")


@pytest.mark.parametrize("structure", [vm.Quadtree(1), vm.KdTree(1)], ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("kind", [ValueError, OSError, pa.ArrowInvalid, RuntimeError, ZeroDivisionError])
def test_failing_engine_tells_nothing(
    points: NDArray[np.float64], watch: Watch, kind: type[Exception], structure: Any
) -> None:
    sealed = Sealed(FailingEngine(points.copy(), kind), DOMAIN)
    with pytest.raises(VeilmapError, match=kind.__name__) as caught:
        measure(sealed, vm.Method(structure=structure), Fraction(1))
    assert secrets_in(caught.value, watch) == []


def test_failing_engine_would_be_seen(points: NDArray[np.float64], watch: Watch) -> None:
    with pytest.raises(ValueError, match="cannot convert") as caught:
        Sealed(FailingEngine(points.copy(), ValueError), DOMAIN)._tally(None, None)  # type: ignore[arg-type]
    assert secrets_in(caught.value, watch)


@pytest.mark.parametrize("method", ["best", "quad-opt", "kd-standard", "kd-cell"])
@pytest.mark.parametrize("kind", [VeilmapError, MemoryError, KeyboardInterrupt, ValueError])
def test_error_while_counts_are_open_tells_nothing(
    monkeypatch: pytest.MonkeyPatch, points: NDArray[np.float64], watch: Watch, kind: type[BaseException], method: str
) -> None:
    def fail(*arguments: object) -> None:
        raise kind("while the counts are there")

    monkeypatch.setattr(noise_models, "discrete_laplace", fail)
    with pytest.raises((VeilmapError, MemoryError, KeyboardInterrupt)) as caught:
        publish(points, method=method, height=None if method == "best" else 2)
    assert secrets_in(caught.value, watch) == []


BAD_CALLS: dict[str, Any] = {
    "bad box": lambda points: publish(points).count([[1, 2, 3]]),
    "inverted box": lambda points: publish(points).count([[5, 40, 1, 41]]),
    "NaN box": lambda points: publish(points).count([[np.nan, 40, 1, 41]]),
    "confidence": lambda points: publish(points).count(WHOLE, confidence=2),
    "too many columns": lambda points: publish(np.hstack([points, points])),
    "text": lambda points: publish(points.astype(str)),
    "ragged": lambda points: publish([*points[:50].tolist(), [1.0]]),
    "mixed": lambda points: publish([*points[:50].tolist(), [1.0, "x"]]),
    "huge integers": lambda points: publish([*points[:50].tolist(), [10**400, 1]]),
    "complex": lambda points: publish(points.astype(complex)),
    "three dimensions": lambda points: publish(points[None]),
    "objects": lambda points: publish({"lon": points[:, 0].tolist()}),
    "epsilon": lambda points: vm.release(points, DOMAIN, 0),
    "height": lambda points: publish(points, method="quad-opt", height=99),
    "method": lambda points: publish(points, method="quad-optt"),
    "budget": lambda points: publish(points, method=vm.Method(structure=vm.Quadtree(2), budget=vm.Levels([1, 1]))),
    "no height": lambda points: publish(points, method="privtree", height=2),
    "not private": lambda points: publish(points, method="kd-pure", height=1),
    "no delta": lambda points: publish(points, noise="discrete-gaussian"),
    "fewer people": lambda points: publish(points, unit=np.arange(51), max_rows_per_unit=2),
    "people without a limit": lambda points: publish(points, unit=np.arange(len(points))),
    "folder": lambda points: publish(points).save("/no/such/folder/release.parquet"),
}


@pytest.mark.parametrize("call", BAD_CALLS)
def test_no_refusal_tells_a_secret(points: NDArray[np.float64], watch: Watch, call: str) -> None:
    with pytest.raises(VeilmapError) as caught:
        BAD_CALLS[call](points)
    error: BaseException | None = caught.value
    while error is not None:
        for text in (str(error), repr(error.args)):
            assert watch.in_text(text) is None
            assert not re.search(r"\b5[01]\b", text)  # the number of rows of the short lists
            assert not re.search(r"str\d|U\d", text)  # the length of the longest text
        error = error.__context__


# --- nothing half-written ---------------------------------------------------------------------------------------


def test_interrupted_release_leaves_no_file(points: NDArray[np.float64], watch: Watch, tmp_path: Path) -> None:
    def interrupt(part: float) -> None:
        raise KeyboardInterrupt

    def work() -> None:
        publish(points, progress=interrupt).save(tmp_path / "release.parquet")

    with pytest.raises(KeyboardInterrupt) as caught:
        work()
    assert list(tmp_path.iterdir()) == []
    assert secrets_in(caught.value, watch) == []


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")], ids=["stop", "full"])
def test_interrupted_save_leaves_what_was_there(
    monkeypatch: pytest.MonkeyPatch, points: NDArray[np.float64], tmp_path: Path, step: str, error: BaseException
) -> None:
    release, path = publish(points), tmp_path / "release.parquet"
    path.write_bytes(b"the old one")

    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(f"os.{step}", fail)
    with pytest.raises((KeyboardInterrupt, VeilmapError)):
        release.save(path)
    monkeypatch.undo()
    assert [p.read_bytes() for p in tmp_path.iterdir()] == [b"the old one"]


# --- the shape of a file is public ------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["height 2", "noisy counts", "unmeasured levels"])
def test_only_noisy_numbers_of_a_file_depend_on_the_data(points: NDArray[np.float64], tmp_path: Path, way: str) -> None:
    nobody, far = np.zeros((0, 2)), np.full((7, 2), 1e9)
    headers, shapes = [], []
    for k, rows in enumerate((points, points[:1], nobody, far)):
        path = tmp_path / f"{k}.parquet"
        publish(rows, **WAYS[way]).save(path)
        file = pq.ParquetFile(path)
        header = json.loads(file.metadata.metadata[b"veilmap"])
        assert set(header.pop("provenance")) == {"software", "created", "python", "numpy", "pyarrow"}
        keys = {k: v for k, v in file.metadata.metadata.items() if k not in (b"veilmap", b"veilmap:checksum")}
        fixed = file.read().drop_columns(["noisy_count", "estimate", "unevenness"])
        headers.append((header, keys))
        shapes.append((file.metadata.num_rows, file.metadata.num_row_groups, file.schema_arrow, fixed))
    assert all(h == headers[0] for h in headers)
    for rows, groups, schema, fixed in shapes:
        assert (rows, groups) == shapes[0][:2]
        assert schema.equals(shapes[0][2])
        assert fixed.equals(shapes[0][3])


def test_sealing_looks_at_nothing_but_the_shape() -> None:
    """Two data sets of very different content cannot be distinguished once sealed."""
    assert repr(seal(np.zeros((3, 2)), DOMAIN)) == repr(seal(np.full((99, 2), np.nan), DOMAIN))
