"""Pictures of releases: of every kind, in every format, with what is promised on them."""

from __future__ import annotations

import io
import itertools
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import veilmap as vm
from veilmap.errors import MissingExtra
from veilmap.geography.crs import Ground
from veilmap.plot import draw, rendered
from veilmap.plot.density import density_image
from veilmap.plot.maps import degrees
from veilmap.testing import fixed_entropy

pytest.importorskip("matplotlib", reason="matplotlib is not installed")
WEST = vm.Domain({"lon": (-125, -103), "lat": (31, 49)})
SQUARE = vm.Domain({"x": (0, 8), "y": (0, 8)})
SMALL = {"dpi": 40}


def points(domain: vm.Domain, rows: int = 5000) -> np.ndarray:
    middle, width = (domain.lo + domain.hi) / 2, domain.hi - domain.lo
    return np.random.default_rng(1).normal(middle, width / 8, (rows, domain.dimensions))


def made(domain: vm.Domain, rows: int = 5000, method: str = "best", **more: Any) -> vm.Release:
    with fixed_entropy(2):
        return vm.release(points(domain, rows), domain, 1, method, **more)


@pytest.fixture(scope="module")
def west() -> vm.Release:
    return vm.release(points(WEST), WEST, 1)


def pixels(release: vm.Release, **look: Any) -> np.ndarray:
    from matplotlib.image import imread

    return np.asarray(imread(io.BytesIO(rendered(release, "png", **{**SMALL, **look}))))[..., :3]


def texts(figure: Any) -> str:
    from matplotlib.text import Text

    return "\n".join(text.get_text() for text in figure.findobj(Text))


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "begin"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF"), ("PNG", b"\x89")]
)
def test_a_picture_is_written_by_its_name(west: vm.Release, tmp_path: Path, kind: str, begin: bytes) -> None:
    draw(west, tmp_path / f"map.{kind}", **SMALL)
    assert (tmp_path / f"map.{kind}").read_bytes().startswith(begin)
    assert len(list(tmp_path.iterdir())) == 1


def test_the_command_draws_and_does_not_overwrite(west: vm.Release, tmp_path: Path, run: Callable[..., Any]) -> None:
    west.save(tmp_path / "west.parquet")
    there = tmp_path / "west.png"
    first = "plot", tmp_path / "west.parquet", "-o", there, "--dpi", 40
    assert run(*first, "--title", "The west", "--theme", "dark", "--size", "5x4", "--cells")[0] == 0
    before = there.read_bytes()
    status, _, said = run(*first)
    assert status == 2
    assert "already exists" in said
    assert there.read_bytes() == before
    assert run(*first, "--overwrite", "--uncertainty")[0] == 0
    assert there.read_bytes() != before


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-o", "map.gif"], "The name of a picture must end in .png, .svg or .pdf"),
        (["-o", "missing/map.png"], "does not exist"),
        (["-o", "west.parquet", "--overwrite"], "is the release itself"),
        (["-o", "map.png", "--size", "5"], "such as 8x6; got '5'"),
        (["-o", "map.png", "--size", "1x1"], "2 to 40 inches"),
        (["-o", "map.png", "--size", "nanx4"], "2 to 40 inches"),
        (["-o", "map.png", "--dpi", "7"], "30 to 1200 dots per inch"),
        (["-o", "map.png", "--dpi", "1200", "--size", "40x40"], "at most 100,000,000 dots"),
        (["-o", "map.png", "--theme", "drak"], "Did you mean 'dark'?"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_a_sentence(
    west: vm.Release,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    run: Callable[..., Any],
    words: list[str],
    why: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    west.save("west.parquet")
    status, _, said = run("plot", "west.parquet", *words)
    assert status == 2
    assert why in said
    assert [path.name for path in tmp_path.iterdir()] == ["west.parquet"]


def test_a_picture_is_the_same_whenever_it_is_made(west: vm.Release) -> None:
    assert rendered(west, "svg", **SMALL) == rendered(west, "svg", **SMALL)


def test_without_matplotlib_it_says_what_to_install(west: vm.Release, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=re.escape("pip install 'veilmap[plot]'")):
        west.plot()
    assert "<table>" in west._repr_html_()
    assert "<img" not in west._repr_html_()


# --- what is on it --------------------------------------------------------------------------------------------------


def test_a_picture_says_what_is_promised(west: vm.Release) -> None:
    drawn = west.plot(title="The <west> $x$")
    said = " ".join(texts(drawn).split())
    assert west.privacy.statement() in said
    assert "estimated rows per" in said
    assert "km²" in said
    assert "The <west> $x$" in said
    assert "200 km at 40° N" in said
    assert "Natural Earth" in said
    assert "NOT PRIVATE" not in said
    assert west.privacy.statement() in rendered(west, "svg", **SMALL).decode()


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_what_is_not_private_has_a_mark_in_red(axes: int) -> None:
    domain = vm.Domain({f"a{k}": (0, 8) for k in range(axes)})
    release = made(domain)
    assert texts(release.plot(title="A test")).count("NOT PRIVATE") == 2  # the mark, and the statement
    red = np.all(np.abs(pixels(release) - np.array([0xB3, 0x26, 0x1E]) / 255) < 0.02, axis=2)
    assert red.sum() > 100


def test_a_map_of_degrees_has_the_shape_of_the_ground(west: vm.Release) -> None:
    axes = west.plot().axes[0]
    box = axes.get_window_extent()
    assert box.height / box.width == pytest.approx(18 / 22 / np.cos(np.radians(40)), rel=0.01)
    assert axes.get_xlim() == (-125, -103)


def test_densities_are_of_square_kilometres() -> None:
    north = vm.Domain({"lon": (0, 10), "lat": (60, 70)})
    rows = np.random.default_rng(3).uniform((0, 60), (10, 70), (200_000, 2))
    with fixed_entropy(3):
        release = vm.release(rows, north, 1, "quad-opt", height=3)
    density = density_image(release, ground=Ground(north)).density
    size = 10 * 10 * 111.195**2 * np.cos(np.radians(65))
    assert np.nanmean(density) == pytest.approx(200_000 / size, rel=0.02)
    assert density[-1].mean() / density[0].mean() == pytest.approx(
        np.cos(np.radians(60.6)) / np.cos(np.radians(69.4)), rel=0.05
    )


def test_errors_of_a_map_are_those_of_its_cells() -> None:
    rows = np.random.default_rng(4).uniform(0, 8, (100_000, 2))
    with fixed_entropy(4):
        release = vm.release(rows, SQUARE, 1, "quad-opt", height=3)
    leaves = release.nodes.filter(release.nodes["leaf"])
    error = leaves["stderr"].to_numpy() / leaves["estimate"].to_numpy()
    drawn = density_image(release).error
    assert np.nanmin(drawn) == pytest.approx(error.min(), rel=1e-9)
    assert np.nanmax(drawn) == pytest.approx(error.max(), rel=1e-9)


@pytest.mark.parametrize(
    ("value", "letters", "said"),
    [(-120, "EW", "120° W"), (0, "EW", "0°"), (190, "EW", "170° W"), (7.5, "NS", "7.5° N"), (180, "EW", "180°")],
)
def test_degrees_are_written_with_their_letter(value: float, letters: str, said: str) -> None:
    assert degrees(value, letters) == said


# --- of anything ----------------------------------------------------------------------------------------------------

KINDS: dict[str, tuple[vm.Domain, dict[str, Any]]] = {
    "one axis": (vm.Domain({"age": (0, 100)}), {}),
    "one axis, many leaves": (vm.Domain({"age": (0, 100)}), {"method": "quad-opt", "height": 14}),
    "three axes": (vm.Domain({"lon": (-125, -103), "lat": (31, 49), "hour": (0, 24)}), {}),
    "five axes": (vm.Domain(dict.fromkeys("abcde", (0, 1))), {"rows": 500}),
    "no rows": (SQUARE, {"rows": 0}),
    "no rows on one axis": (vm.Domain({"age": (0, 100)}), {"rows": 0}),
    "negative leaves": (SQUARE, {"rows": 20, "method": "quad-geo", "height": 4}),
    "one node": (SQUARE, {"method": "quad-opt", "height": 0}),
    "boxes that overlap": (SQUARE, {"method": "hilbert-r"}),
    "a kd-tree": (SQUARE, {"method": "kd-standard", "height": 4}),
    "a tiny domain": (vm.Domain({"lon": (5, 5 + 1e-9), "lat": (50, 50 + 1e-9)}), {}),
    "a domain far away": (vm.Domain({"x": (1e12, 1e12 + 8), "y": (-5, 5)}), {}),
    "a thin domain": (vm.Domain({"x": (0, 1e6), "y": (0, 1e-3)}), {"method": "best"}),
    "the pole": (vm.Domain({"lon": (-180, 180), "lat": (80, 90)}), {}),
    "the date line": (vm.Domain({"lon": (150, 210), "lat": (-50, 70)}), {}),
    "names of any script": (vm.Domain({"経度 $x$": (0, 1), "<b>& _^{": (0, 1)}), {}),
    "Mercator": (vm.Domain({"x": (-1.4e6, 4e6), "y": (4.1e6, 1.12e7)}, crs="EPSG:3857"), {}),
    "the whole of Mercator": (vm.Domain({"x": (-2.1e7, 2.1e7), "y": (-2.1e7, 2.1e7)}, crs="EPSG:3857"), {}),
    "a polar projection": (vm.Domain({"x": (-3e6, 3e6), "y": (-3e6, 3e6)}, crs="EPSG:3413"), {}),
    "feet": (vm.Domain({"x": (8e5, 1.2e6), "y": (1e5, 3.2e5)}, crs="EPSG:2263"), {}),
}


DOUBTED = ["one axis", "three axes", "no rows", "boxes that overlap"]


@pytest.mark.parametrize(("kind", "uncertainty"), [*((k, False) for k in KINDS), *((k, True) for k in DOUBTED)])
def test_any_release_can_be_drawn(kind: str, uncertainty: bool) -> None:
    domain, more = KINDS[kind]
    if domain.crs:
        pytest.importorskip("pyproj", reason="pyproj is not installed")
    release = made(domain, **{"method": "privtree", **more})
    theme = "dark" if uncertainty else "light"
    there = pixels(release, uncertainty=uncertainty, theme=theme, cells=uncertainty and domain.dimensions == 2)
    assert len(np.unique(there.reshape(-1, 3), axis=0)) > 20  # words, at least
    assert there.shape[0] <= 40 * 11
    assert there.shape[1] <= 40 * 9


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_names_without_end_and_pictures_without_room_are_drawn(axes: int) -> None:
    release = made(vm.Domain({"x" * 50_000 + str(k): (0, 8) for k in range(axes)}), method="quad-opt", height=2)
    assert pixels(release, title="word " * 50_000, size=(2, 2)).shape[:2] == (80, 80)


def test_more_rows_give_more_colour() -> None:
    """The near miss: a map of nothing is words and lines alone."""
    some, none = (pixels(made(SQUARE, rows)) for rows in (5000, 0))
    coloured = [(np.ptp(there, axis=2) > 0.15).sum() for there in (some, none)]  # colours, not greys
    assert coloured[0] > coloured[1] + 2000


def test_a_map_of_a_million_nodes_takes_seconds() -> None:
    import time

    release = made(WEST, rows=200_000, method="quad-opt", height=9)
    release.plot(**SMALL)
    start = time.process_time()
    release.plot(cells=True)
    assert time.process_time() - start < 10


# --- in a notebook --------------------------------------------------------------------------------------------------


def test_a_figure_shows_itself_without_pyplot(west: vm.Release) -> None:
    assert west.plot(**SMALL)._repr_png_().startswith(b"\x89PNG")


def test_what_takes_long_is_drawn_only_when_asked() -> None:
    many = made(vm.Domain(dict.fromkeys("abc", (0, 1))), method="quad-opt", height=6)
    assert "<table>" in many._repr_html_()
    assert "<img" not in many._repr_html_()


def test_a_release_shows_itself_with_its_promise_and_a_map() -> None:
    domain = vm.Domain({"<script>": (0, 8), "y&": (0, 8)})
    said = made(domain)._repr_html_()
    assert "NOT PRIVATE" in said
    assert "data:image/png;base64," in said
    assert "&lt;script&gt;" in said
    assert "<script>" not in said


def test_numbers_along_many_axes_stay_apart():
    domain = vm.Domain({f"a{k}": (0, 1) for k in range(8)})
    made = vm.release(np.random.default_rng(1).random((2000, 8)), domain, 0.5).plot()
    made.draw_without_rendering()
    for axes in made.axes:
        said = [label.get_window_extent() for label in axes.get_xticklabels() if label.get_visible()]
        assert all(left.x1 < right.x0 for left, right in itertools.pairwise(said))
