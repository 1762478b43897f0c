"""The page of `veilmap explore` in a real browser: Chromium of this machine, driven by Playwright."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import veilmap as vm
from veilmap.explore import server as serve
from veilmap.testing import fixed_entropy

pytest.importorskip("starlette", reason="there is no starlette: pip install 'veilmap[explore]'")
playwright = pytest.importorskip("playwright.sync_api", reason="there is no playwright: pip install it")

from tests.unit.explore.test_explore import HOMES, RNG, WEST, Server, released, serving  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
SMALL = {"width": 1000, "height": 640}
GPU = ("--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist")  # WebGL without one

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: it is in Debian's chromium"),
    pytest.mark.skipif(not (serve.STATIC_FOLDER / "index.html").exists(), reason="the page is not built: make web"),
    pytest.mark.xdist_group("browser"),
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *GPU])
        yield browser
        browser.close()


def private(release: vm.Release) -> vm.Release:
    """The same as if it were made with bits that nobody knows, so that the page shows what it shows to most people."""
    from dataclasses import replace

    return replace(release, privacy=replace(release.privacy, private=True))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(private(released()), files=serve.built_files()) as running:
        yield running


class Visit:
    """A page, what it asked for, and what went wrong on it."""

    def __init__(self, browser: Any, server: Server, path: str = "/", **context: Any) -> None:
        self.server, self.requests, self.faults = server, [], []
        self.context = browser.new_context(viewport=SMALL, **context)
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on(
            "console", lambda said: self.faults.append(said.text) if said.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.goto(f"http://127.0.0.1:{server.port}{path}")
        self.page.wait_for_selector("body[data-ready=yes]", timeout=60_000)

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def must_be_clean(self) -> None:
        """No error on the console, and no request to anyone else."""
        assert self.faults == []
        ours = (f"http://127.0.0.1:{self.server.port}/", f"blob:http://127.0.0.1:{self.server.port}/", "data:")
        assert [url for url in self.requests if not url.startswith(ours)] == []

    def inputs(self) -> list[float]:
        found = self.page.eval_on_selector_all(
            "#box input", "all => all.map(one => [Number(one.name), Number(one.value)])"
        )
        return [value for _, value in sorted(found)]

    def answer(self) -> dict[str, float]:
        """What is shown, to all its digits, once it is about the box in the form."""
        return json.loads(self.page.get_attribute("#estimate", "data-exact"))

    def wait_for(self, box: list[float]) -> dict[str, float]:
        estimate = float(self.server.release.count(box).estimate[0])
        self.page.wait_for_function(
            "exact => JSON.parse(document.getElementById('estimate').dataset.exact || '{}').estimate === exact",
            arg=estimate,
        )
        return self.answer()

    def drag(self, start: tuple[int, int], end: tuple[int, int]) -> None:
        mouse = self.page.mouse
        mouse.move(*start)
        mouse.down()
        mouse.move((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
        mouse.move(*end)
        mouse.up()

    def hash(self) -> str:
        return self.page.evaluate("location.hash")

    def zoom(self) -> float:
        return float(re.search(r"map=([\d.]+)/", self.hash())[1])


def wait_for_answer(page: Any, server: Server, box: list[float]) -> None:
    exact = "JSON.parse(document.getElementById('estimate').dataset.exact || '{}').estimate"
    near = f"said => Math.abs({exact} - said) <= 1e-9 * (1 + Math.abs(said))"
    page.wait_for_function(near, arg=float(server.release.count(box).estimate[0]))


def test_a_drawn_box_shows_what_query_says(chromium, server, run, tmp_path):
    server.release.save(tmp_path / "homes.parquet")
    with Visit(chromium, server, "/#map=6/47/-121") as visit:
        visit.page.click("#draw")
        visit.drag((150, 150), (300, 330))
        box = visit.inputs()
        assert box != [-125, 31, -103, 49]
        shown = visit.wait_for(box)
        status, out, _ = run("query", tmp_path / "homes.parquet", "--box", ",".join(map(repr, box)), "--format", "json")
        said = json.loads(out)["answers"][0]
        assert status == 0
        assert said["estimate"] > 1000
        wanted = {name: said[name] for name in ("estimate", "stderr", "low", "high")}
        assert shown == pytest.approx(wanted, rel=1e-12)  # trees are walked, or tables looked up
        assert visit.page.inner_text("#estimate").replace(",", "") == f"{said['estimate']:.0f}"
        assert visit.page.get_attribute("#draw", "aria-pressed") == "false"
        visit.drag((500, 300), (520, 330))  # without the button, the map is moved
        assert visit.inputs() == box
        visit.page.keyboard.down("Shift")
        visit.drag((250, 200), (300, 250))
        visit.page.keyboard.up("Shift")
        assert visit.inputs() != box
        visit.must_be_clean()


def test_the_page_asks_no_other_host_and_zooms(chromium, server):
    with Visit(chromium, server) as visit:
        page = visit.page
        before = {url for url in visit.requests if "/tiles/" in url}
        page.focus("#map canvas")
        with page.expect_request(re.compile(r"/tiles/[5-9]/")):
            for _ in range(3):
                page.keyboard.press("=")
                page.wait_for_timeout(400)
        first = visit.zoom()
        page.click("button.maplibregl-ctrl-zoom-in")
        page.wait_for_function("before => Number(location.hash.match(/map=([\\d.]+)/)[1]) > before + 0.5", arg=first)
        page.mouse.wheel(0, -100)
        assert {url for url in visit.requests if "/tiles/" in url} > before
        assert page.inner_text("#statement") == server.release.privacy.statement()
        assert page.is_visible("#promise")
        assert page.is_hidden("#alarm")
        visit.must_be_clean()


def test_the_density_is_drawn_where_points_are(chromium, server):
    """A shot of the map has many colours round Seattle, and few further east."""
    image = pytest.importorskip("PIL.Image", reason="there is no Pillow: it comes with matplotlib")

    def colours(x: int, y: int) -> int:
        shot = visit.page.screenshot(clip={"x": x, "y": y, "width": 60, "height": 60})
        return len(np.unique(np.array(image.open(io.BytesIO(shot)).convert("RGB")).reshape(-1, 3), axis=0))

    with Visit(chromium, server, "/#map=7/47.6/-122.3") as visit:
        visit.page.wait_for_selector("body[data-drawn=yes]")
        assert colours(286, 270) > 10
        assert colours(540, 430) < 10


def test_boxes_are_typed_moved_by_keys_and_kept_in_the_address(chromium, server):
    with Visit(chromium, server, "/#map=6.00/40.00000/-115.00000&box=-123,47,-121,48") as visit:
        page = visit.page
        assert visit.inputs() == [-123, 47, -121, 48]
        visit.wait_for([-123, 47, -121, 48])
        assert visit.hash() == "#map=6.00/40.00000/-115.00000&box=-123,47,-121,48"
        page.fill("input[name='0']", "-122.5")
        page.keyboard.press("Enter")
        visit.wait_for([-122.5, 47, -121, 48])
        assert "box=-122.5,47,-121,48" in visit.hash()
        page.focus("#map canvas")
        page.keyboard.press("Shift+ArrowRight")
        assert visit.inputs()[0] == pytest.approx(-122.35)
        visit.wait_for(visit.inputs())
        page.keyboard.press("]")
        wider = visit.inputs()
        assert wider[0] < -122.35
        page.keyboard.press("[")
        assert visit.inputs()[0] > wider[0]
        page.click("#reset")
        assert visit.inputs() == [-125, 31, -103, 49]
        assert "box" not in visit.hash()
        page.evaluate("location.hash = '#map=7.00/47.00000/-121.00000&box=-107,34,-106,36'")
        visit.wait_for([-107, 34, -106, 36])
        assert visit.zoom() == 7
        page.evaluate("location.hash = '#box=-115.0001,40,-115,40.0001'")
        visit.wait_for([-115.0001, 40, -115, 40.0001])
        assert page.inner_text("#estimate") == "0"  # and not 1e-7
        page.evaluate("location.hash = '#map=7.00/47.00000/-121.00000&box=-107,34,-106,36'")
        visit.wait_for([-107, 34, -106, 36])
        page.fill("input[name='0']", "-100")
        page.keyboard.press("Enter")
        page.wait_for_selector("#fault:not([hidden])")
        assert "inverted" in page.inner_text("#fault")
        assert visit.faults[:1] == [f for f in visit.faults[:1] if "400" in f]  # browsers write that themselves


@pytest.mark.parametrize("view", ["5/999/0", "1e300/40/-1e300", "x/y/z"])
def test_a_view_that_is_nowhere_is_passed_over(chromium, server, view):
    with Visit(chromium, server, f"/#map={view}&box=-123,47,-121,48") as visit:
        visit.wait_for([-123, 47, -121, 48])
        assert visit.page.is_hidden("#fault")
        visit.must_be_clean()


def test_answers_are_downloaded_as_csv(chromium, server):
    boxes = [[-123.0, 47.0, -121.0, 48.0], [-107.0, 34.0, -106.0, 36.0]]
    with Visit(chromium, server) as visit:
        for box in boxes:
            for name, value in enumerate(box):
                visit.page.fill(f"input[name='{name}']", f"{value:g}")
            visit.page.click("#box button[type=submit]")
            visit.wait_for(box)
        with visit.page.expect_download() as waiting:
            visit.page.click("#csv")
        text = Path(waiting.value.path()).read_text(encoding="utf-8")
        assert waiting.value.suggested_filename == "homes-answers.csv"
        visit.page.click("#clear")
        assert visit.page.is_hidden("#kept")
    rows = {tuple(map(float, list(row.values())[:4])): row for row in csv.DictReader(io.StringIO(text))}
    answers = server.release.count(boxes)
    for k, box in enumerate(boxes):
        row = rows[tuple(box)]
        assert float(row["estimate"]) == pytest.approx(answers.estimate[k], rel=1e-9)
        assert float(row["high"]) == pytest.approx(answers.high[k], rel=1e-9)
        assert row["private"] == "true"


def test_histograms_can_be_read_and_dragged(chromium, server):
    with Visit(chromium, server) as visit:
        page = visit.page
        page.wait_for_selector(".chart .bar")
        frame = page.locator(".chart").first.bounding_box()
        page.locator(".chart").first.focus()
        page.keyboard.press("ArrowRight")
        assert page.locator("#charts output").first.inner_text().startswith("−125 to")
        visit.drag((frame["x"] + 80, frame["y"] + 40), (frame["x"] + 160, frame["y"] + 40))
        box = visit.inputs()
        assert -125 < box[0] < box[2] < -103
        assert box[1::2] == [31, 49]
        visit.wait_for(box)
        visit.must_be_clean()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["/", "/api"])
def test_axe_finds_nothing_to_blame(chromium, server, scheme, path):
    if not AXE.exists():
        pytest.skip("there is no axe-core: make web")
    context = chromium.new_context(viewport=SMALL, color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{server.port}{path}#box=-123,47,-121,48")
    if path == "/":
        page.wait_for_selector("body[data-ready=yes]")
        page.wait_for_selector("#kept:not([hidden])")
        page.click("#keys summary")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate(
        "axe.run().then(found => found.violations.map(v => [v.id, v.nodes.map(n => n.html + n.failureSummary)]))"
    )
    context.close()
    assert found == []


def test_themes_follow_the_system_and_the_button(chromium, server):
    with Visit(chromium, server, color_scheme="dark") as visit:
        ground = "getComputedStyle(document.body).backgroundColor"
        dark = visit.page.evaluate(ground)
        assert any("theme=dark" in url for url in visit.requests)
        with visit.page.expect_request(re.compile("theme=light")):
            visit.page.click("#theme")
        assert visit.page.evaluate(ground) != dark
        visit.page.reload()
        visit.page.wait_for_selector("body[data-ready=yes]")
        assert visit.page.evaluate(ground) != dark
        visit.must_be_clean()


def test_without_webgl_the_page_says_so_and_answers(chromium, server):
    no_gl = "HTMLCanvasElement.prototype.getContext = () => null"
    context = chromium.new_context()
    context.add_init_script(no_gl)
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{server.port}/")
    page.wait_for_selector("body[data-ready=yes]")
    assert "no WebGL" in page.inner_text("#no-webgl")
    assert page.is_hidden("#keys")  # they are the map's
    page.fill("input[name='0']", "-123")
    page.keyboard.press("Enter")
    wait_for_answer(page, server, [-123, 31, -103, 49])
    context.close()


def test_a_zone_is_clicked_or_chosen(chromium, tmp_path):
    geopandas = pytest.importorskip("geopandas", reason="there is no geopandas: pip install 'veilmap[geo]'")
    shapely = pytest.importorskip("shapely")
    from veilmap.explore.zones import zones_of

    release = private(released())
    shapes = [shapely.box(-123, 47, -121, 48), shapely.box(-119, 36, -109, 43)]
    geopandas.GeoDataFrame({"name": ["Sound", "Basin"]}, geometry=shapes, crs="EPSG:4326").to_file(
        tmp_path / "zones.geojson"
    )
    zones = zones_of(release, tmp_path / "zones.geojson")
    with serving(release, files=serve.built_files(), zones=zones) as running, Visit(chromium, running) as visit:
        visit.page.select_option("#zone", label="Sound")
        wait_for_answer(visit.page, running, [-123, 47, -121, 48])  # a polygon adds up in another order than a box
        assert visit.page.inner_text("#what") == "Sound"
        assert "zone=0" in visit.hash()
        visit.page.wait_for_selector("body[data-drawn=yes]")
        visit.page.click("#map canvas", position={"x": 315, "y": 280})
        visit.page.wait_for_function("() => document.getElementById('what').textContent === 'Basin'")
        assert visit.answer()["estimate"] == pytest.approx(release.count(shapes[1]).estimate[0])
        visit.must_be_clean()


def test_names_are_no_code_in_the_page_nor_in_the_csv(chromium, tmp_path):
    geopandas = pytest.importorskip("geopandas", reason="there is no geopandas: pip install 'veilmap[geo]'")
    shapely = pytest.importorskip("shapely")
    from veilmap.explore.zones import zones_of

    image = "<img src=x onerror=\"document.title='run'\">"
    release = private(released(vm.Domain({image: (-125, -103), "=1+1": (31, 49)}, crs="EPSG:4326")))
    shapes, names = [shapely.box(-123, 47, -121, 48)] * 3, [image, "=1+1", "a;=1"]
    geopandas.GeoDataFrame({"name": names}, geometry=shapes, crs="EPSG:4326").to_file(tmp_path / "zones.geojson")
    zones = zones_of(release, tmp_path / "zones.geojson")
    with serving(release, files=serve.built_files(), zones=zones) as running, Visit(chromium, running) as visit:
        for name in names:
            visit.page.select_option("#zone", label=name)
            visit.page.wait_for_function("name => document.getElementById('what').textContent === name", arg=name)
        with visit.page.expect_download() as waiting:
            visit.page.click("#csv")
        rows = list(csv.reader(Path(waiting.value.path()).read_text(encoding="utf-8").splitlines()))
        assert [row[0] for row in rows] == ["zone", image, "'=1+1", "a;'=1"]
        assert rows[0][2] == "'=1+1_low"
        assert visit.page.locator("img").count() == 1  # its own
        visit.must_be_clean()
        visit.page.goto(f"http://127.0.0.1:{running.port}/api")
        assert visit.page.locator("img").count() == 0


def test_what_is_not_private_says_so_above_all(chromium):
    with fixed_entropy(7):
        release = vm.release(HOMES, WEST, epsilon=1, method="quad-opt", height=4)
    with serving(release, files=serve.built_files()) as running, Visit(chromium, running) as visit:
        assert visit.page.is_visible("#alarm")
        assert visit.page.inner_text("#alarm").startswith("Not private. This release was made for a test")
        assert visit.page.inner_text("#promise").startswith("Not private. This release")


@pytest.mark.parametrize("axes", [1, 3])
def test_other_than_two_axes_have_histograms_and_no_map(chromium, axes):
    domain = vm.Domain(dict.fromkeys(("age", "income", "height")[:axes], (0, 100)))
    release = private(released(domain, RNG.normal(50, 15, (2000, axes))))
    with serving(release, files=serve.built_files()) as running, Visit(chromium, running) as visit:
        assert visit.page.is_hidden("#stage")
        visit.page.wait_for_selector(".chart .bar")
        assert visit.page.locator(".chart").count() == axes
        visit.page.fill("input[name='0']", "40")
        visit.page.keyboard.press("Enter")
        visit.wait_for([40, *[0] * (axes - 1), *[100] * axes])
        visit.must_be_clean()


def test_a_plane_of_its_own_is_drawn_and_asked(chromium):
    domain = vm.Domain({"x": (0, 4000), "y": (-1000, 1000)})
    release = private(released(domain, RNG.normal([2000, 0], 300, (5000, 2))))
    with serving(release, files=serve.built_files()) as running, Visit(chromium, running) as visit:
        visit.page.click("#draw")
        visit.drag((300, 300), (500, 420))
        box = visit.inputs()
        assert 0 <= box[0] < box[2] <= 4000
        assert box[2] - box[0] == pytest.approx((box[3] - box[1]) * 200 / 120, rel=0.05)  # not bent
        visit.wait_for(box)
        visit.must_be_clean()
