"""The documentation is run, built and compared with the code, so that it cannot say what is not so."""

from __future__ import annotations

import ast
import copy
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import duckdb
import jsonschema
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from typer.main import get_command

import veilmap as vm
from tests.contracts import warm_commands
from tests.contracts.test_audit_page import names_in as functions_and_classes
from veilmap.cli import app

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
AT_THE_ROOT = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
PAGES = [*(ROOT / name for name in AT_THE_ROOT), *sorted(DOCS.glob("*.md"))]
GENERATED = DOCS / "cli.md"  # made from the help of the commands
PROSE = sorted({*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "proofs").rglob("*.md")} - {GENERATED})
MAX_CHARACTERS_PER_LINE = 120
MAX_LINES_OF_THE_README = 120
BIN = Path(sys.executable).parent

RUN = {"python", "console", "sql"}
SHOWN = {"text", "json"}  # output, and a format that is parsed
OPTED_OUT = {"bash"}  # only ever with a reason

_FENCE = re.compile(r"^\s*(```+|~~~+)\s*(.*?)\s*$")
_REASON = re.compile(r"^\s*<!-- not run: (\S.*?) -->\s*$")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int  # of its first line, counted from 1
    language: str
    text: str
    reason: str | None  # why it is not run

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> list[Block]:
    lines, found, k = page.read_text(encoding="utf-8").splitlines(), [], 0
    while k < len(lines):
        opened = _FENCE.match(lines[k])
        k += 1
        if not opened:
            continue
        start = k
        while k < len(lines) and lines[k].strip() != opened[1]:
            k += 1
        assert k < len(lines), f"{page.name}:{start}: this block is never closed"
        indent = len(lines[start - 1]) - len(lines[start - 1].lstrip())
        body = "\n".join(line[indent:] for line in lines[start:k])
        said = _REASON.match(lines[start - 2]) if start >= 2 else None
        found.append(Block(page, start + 1, (opened[2].split() or [""])[0], body, said[1] if said else None))
        k += 1
    return found


def commands(block: Block) -> str:
    """The lines of a console block that someone types: after '$ ', and after '> ' where they go on."""
    typed = [line[2:] for line in block.text.splitlines() if line.startswith(("$ ", "> "))]
    assert typed, f"{block}: a console block needs a line that starts with '$ '; use text for mere output"
    return "\n".join(typed)


def by_name(page: Path) -> str:
    return page.name


# --- every block ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_no_block_is_skipped_in_silence(page: Path) -> None:
    for block in blocks(page):
        allowed = RUN | SHOWN | (OPTED_OUT if block.reason else set())
        assert block.language in allowed, (
            f"{block}: a block is one of {', '.join(sorted(allowed))}, got {block.language!r}; "
            f"bash needs '<!-- not run: why -->' in the line before it"
        )
        assert block.reason is None or block.language not in SHOWN, f"{block}: this would not be run anyway"


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_every_opt_out_stands_before_a_block(page: Path) -> None:
    reasons = [line for line in page.read_text(encoding="utf-8").splitlines() if "not run" in line and "<!--" in line]
    assert len(reasons) == sum(block.reason is not None for block in blocks(page))


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_every_block_of_the_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands_folder: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.reason is not None:
            continue
        if block.language == "python":
            code = "\n" * (block.line - 1) + block.text  # so that a traceback names the line of the page
            exec(compile(code, str(block.page), "exec"), names)  # noqa: S102
        elif block.language == "console":
            run_in_shell(block, tmp_path, commands_folder)
        elif block.language == "sql":
            duckdb.connect().execute(block.text).fetchall()
        elif block.language == "json":
            json.loads(block.text)


@pytest.fixture(scope="module")
def commands_folder() -> Iterator[Path]:
    """A folder with the command ``veilmap``."""
    with tempfile.TemporaryDirectory() as name:  # its path is short, as that of a socket must be
        address = f"{name}/socket"
        start = [sys.executable, warm_commands.__file__, address]
        environment = {**os.environ, "PYTHONWARNINGS": "error"}
        with subprocess.Popen(start, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            warm_commands.write_command(Path(name), address)
            yield Path(name)
            server.kill()


def run_in_shell(block: Block, folder: Path, commands_folder: Path) -> None:
    path = os.pathsep.join([str(commands_folder), str(BIN), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path, "PYTHONWARNINGS": "error", "NO_COLOR": "1"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands(block)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{block}: {commands(block)}\n{done.stdout}{done.stderr}"


def test_the_blocks_that_matter_are_found() -> None:
    """A reader of blocks that found none would pass everything above."""
    found = [block for page in PAGES for block in blocks(page) if block.reason is None]
    languages = {language: sum(block.language == language for block in found) for language in RUN}
    assert all(languages[language] >= least for language, least in (("python", 10), ("console", 5), ("sql", 1)))


SQUARE = vm.Domain({"lon": (-10, 10), "lat": (40, 60)})


def test_the_sql_of_the_format_page_counts_as_veilmap_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = vm.release(np.full((9, 2), [2, 49]), SQUARE, 1, "quad-opt", height=4)
    made.save("points.parquet")
    (query,) = (block.text for block in blocks(DOCS / "format.md") if "AS points_in_box" in block.text)
    ((by_sql,),) = duckdb.connect().execute(query).fetchall()
    assert by_sql == pytest.approx(made.count([0, 47, 4, 51]).estimate[0])


def test_blocks_are_read_as_they_stand(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "a\n\n```python\nx = 1\n```\n\n<!-- not run: slow -->\n```bash\nmake\n```\n\n- b\n\n  ```\n  c\n  ```\n"
    )
    read = [(b.line, b.language, b.text, b.reason) for b in blocks(page)]
    assert read == [(4, "python", "x = 1", None), (9, "bash", "make", "slow"), (15, "", "c", None)]


# --- how pages are written -----------------------------------------------------------------------------

_ONLY_LINKS = re.compile(r"^\s*(?:[-*]\s+)?(?:!?\[[^\]]*\]\([^)]*\)[\s,.;·|]*)+$|^\s*\[[^\]]+\]:\s+\S+$")


def long_lines(text: str) -> list[int]:
    """Return the numbers of prose lines that are too long; tables, code and lines that hold only links may be wide."""
    found, fence = [], None
    for number, line in enumerate(text.splitlines(), start=1):
        if mark := _FENCE.match(line):
            if fence is None:
                fence = mark[1]
            elif line.strip() == fence:
                fence = None
            continue
        prose = fence is None and not line.lstrip().startswith("|") and not _ONLY_LINKS.match(line)
        if prose and len(line) > MAX_CHARACTERS_PER_LINE:
            found.append(number)
    return found


@pytest.mark.parametrize("page", PROSE, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_prose_lines_have_at_most_120_characters(page: Path) -> None:
    lines = long_lines(page.read_text(encoding="utf-8"))
    assert not lines, f"{page.name}: lines {', '.join(map(str, lines))} have more than {MAX_CHARACTERS_PER_LINE}"


def test_long_lines_are_found_in_prose_and_nowhere_else() -> None:
    wide = "x" * (MAX_CHARACTERS_PER_LINE + 1)
    link = f"[{wide}](page.md)"
    lines = [wide[1:], wide, f"| {wide} |", "```text", wide, "```", link, f"- {link}, {link}.", f"see {link}", wide]
    assert long_lines("\n".join(lines)) == [2, 9, 10]
    assert long_lines(f"- a\n\n  ```python\n  {wide}\n  ```\n\n  {wide}") == [7]


def test_the_readme_is_short() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MAX_LINES_OF_THE_README


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_code_that_the_pages_for_developers_name_is_there(name: str) -> None:
    """`package/module.py::name` is below src/veilmap, or below the root of the repository."""
    text = (ROOT / name).read_text(encoding="utf-8")
    named = re.findall(r"`((?:[\w.-]+/)*[\w.-]+(?:\.py|/))(?:::([\w.]+))?`", text)
    assert len(named) > 10
    for file, function in named:
        path = next((root / file for root in (ROOT / "src" / "veilmap", ROOT) if (root / file).exists()), None)
        assert path is not None, f"{name} names {file}, which does not exist"
        for part in function.split(".") if function else ():
            assert part in names_in(path), f"{name} names {function}, which is not in {file}"


def names_in(path: Path) -> set[str]:
    """Return the functions, classes and constants of a Python file."""
    names = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name))
    return functions_and_classes(path) | {node.id for node in names if isinstance(node.ctx, ast.Store)}


def test_the_architecture_page_has_every_layer_and_every_package() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    page = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", text.partition("## Layers")[2].partition("\n## ")[0], re.MULTILINE)
    assert [re.findall(r"`(\w+)`", row) for row in page] == [re.findall(r"veilmap\.(\w+)", layer) for layer in layers]


def test_the_citation_file_names_this_version_and_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["cff-version"] == "1.2.0"
    assert (citation["title"], citation["version"]) == (project["name"], project["version"])
    assert citation["license"] == project["license"]
    assert citation["authors"] == [{"name": "The veilmap developers"}]
    (paper,) = citation["references"]
    assert paper["title"] == "Differentially Private Spatial Decompositions"
    assert [author["family-names"] for author in paper["authors"]] == [
        "Cormode",
        "Procopiuc",
        "Srivastava",
        "Shen",
        "Yu",
    ]


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert targets
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("make ")] == targets[1].split()


# --- the command line ----------------------------------------------------------------------------------

COMMANDS = sorted(get_command(app).commands)


def test_the_page_of_commands_is_what_the_commands_say() -> None:
    spec = importlib.util.spec_from_file_location("make_cli", DOCS / "make_cli.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert (DOCS / "cli.md").read_text(encoding="utf-8") == made.render(), "run: python docs/make_cli.py"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented_and_has_help(name: str) -> None:
    assert f"## veilmap {name}\n" in (DOCS / "cli.md").read_text(encoding="utf-8")
    command = get_command(app).commands[name]
    assert command.help
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"veilmap {name}: {parameter.name} has no help"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_that_can_be_parsed(name: str) -> None:
    command = get_command(app).commands[name]
    example = re.match(r"Example: veilmap (\S+) ?(.*)", command.epilog or "")
    assert example, f"veilmap {name}: the help ends without 'Example: veilmap {name} …'"
    assert example[1] == name
    command.make_context(name, shlex.split(example[2]))  # parses, and does nothing


# --- the site ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    # not --quiet: then mkdocs would not see the warnings that --strict is about
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class _Links(HTMLParser):
    """Where a page points, what it loads, and what in it can be pointed at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name in {"id", "name"}:
                self.anchors.add(value)
            elif tag == "a" and name == "href":
                self.links.append(value)
            elif name in {"href", "src", "srcset"}:
                self.loads.append(value)


def test_the_site_builds_without_a_warning_and_has_every_page(site: Path) -> None:
    for page in DOCS.glob("*.md"):
        assert (site / page.with_suffix(".html").name).exists()
    assert (site / "release.schema.json").exists()
    assert not list(site.rglob("*.py"))


def test_every_link_inside_the_site_leads_somewhere(site: Path) -> None:
    pages = {page: _Links(page.read_text(encoding="utf-8")) for page in site.glob("*.html") if page.name != "404.html"}
    for page, found in pages.items():
        for link in found.links:
            if re.match(r"[a-z]+:", link):
                continue
            file, _, anchor = link.partition("#")
            target = (page.parent / file).resolve() if file not in {"", "."} else page
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{page.name} links to {link}"
            if anchor and target in pages:
                assert anchor in pages[target].anchors, f"{page.name} links to {link}"


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in site.glob("*.html"):
        for address in _Links(page.read_text(encoding="utf-8")).loads:
            assert not re.match(r"([a-z]+:)?//", address), f"{page.name} loads {address}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet.name


def test_the_links_of_the_pages_lead_to_files() -> None:
    """README too, which is no page of the site."""
    for page in PAGES:
        prose = re.sub(r"^\s*```.*?^\s*```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        for link in re.findall(r"\]\(([^)\s]+)[^)]*\)", prose):
            if not re.match(r"[a-z]+:|#", link):
                assert (page.parent / link.partition("#")[0]).exists(), f"{page.name} links to {link}"


@pytest.mark.parametrize(
    "name",
    [*(f"veilmap.{name}" for name in vm.__all__), "veilmap.testing.fixed_entropy"],
)
def test_every_public_name_is_in_the_reference(name: str, site: Path) -> None:
    assert re.search(rf"^::: {re.escape(name)}$", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert name in _Links((site / "api.html").read_text(encoding="utf-8")).anchors


# --- the schema of the file's header ---------------------------------------------------------------------

SCHEMA = json.loads((DOCS / "release.schema.json").read_text(encoding="utf-8"))
LEVELS_WITH_ZEROS = vm.Method(
    structure=vm.Quadtree(height=3),
    budget=vm.Levels([0, "1/3", 0, 2]),
    estimate=vm.Estimate.NOISY_COUNTS,
)


def header_of(tmp_path: Path, axes: int = 2, **how: Any) -> dict[str, Any]:
    """What a saved release says of itself, read with pyarrow alone."""
    domain = vm.Domain(dict.fromkeys("xyz"[:axes], (0, 1)))
    points = np.linspace(0, 1, 300)[:, None].repeat(axes, axis=1)
    vm.release(points, domain, epsilon=0.5, **how).save(tmp_path / "made.parquet")
    found: dict[str, Any] = json.loads(pq.read_metadata(tmp_path / "made.parquet").metadata[b"veilmap"])
    return found


def is_valid(header: object) -> bool:
    return jsonschema.Draft202012Validator(SCHEMA).is_valid(header)


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    ("axes", "how"),
    [
        (2, {}),
        (1, {"method": "best", "prune": 20}),
        (3, {"method": "best", "estimate": "least-squares"}),
        (2, {"method": "quad-opt"}),
        (2, {"method": "quad-opt", "estimate": "shrink"}),
        (2, {"method": "kd-hybrid", "estimate": "nonnegative"}),
        (2, {"method": "quad-opt", "height": 4, "prune": 20}),
        (2, {"method": "quad-post"}),
        (2, {"method": "quad-geo", "height": 0}),
        (2, {"method": LEVELS_WITH_ZEROS}),
        (2, {"method": vm.Method(structure=vm.Quadtree(), budget=vm.Geometric(1.5), name="mine")}),
        (2, {"method": vm.Method(structure=vm.Quadtree(), budget=vm.LeafOnly())}),
        (1, {"method": "quad-baseline"}),
        (3, {"method": "quad-opt"}),
    ],
)
def test_the_header_of_a_release_fits_the_schema(axes: int, how: dict[str, Any], tmp_path: Path) -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(header_of(tmp_path, axes, **how))


def test_the_header_of_a_release_in_whole_numbers_fits_the_schema(tmp_path: Path) -> None:
    made = vm.release(np.linspace(0, 1, 300), vm.Domain({"x": (0, 1)}), epsilon=0.5)
    made.integers().save(tmp_path / "whole.parquet")
    header = vm.load(tmp_path / "whole.parquet").header()
    assert header["method"]["integers"] is True
    assert is_valid(header)
    header["method"]["integers"] = "yes"
    assert not is_valid(header)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("method", "slopes"), "steep"),
        (("method", "structure", "configuration"), {"height": 3}),
        (("method", "budget", "configuration"), {"ratio": 2}),
        (("method", "estimate"), "shrunk"),
        (("privacy", "ledger", 0, "what"), ""),
    ],
)
def test_a_broken_header_of_the_default_does_not_fit_the_schema(
    place: tuple[Any, ...], value: object, tmp_path: Path
) -> None:
    header = header_of(tmp_path)
    assert is_valid(header)
    inner = header
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    assert not is_valid(header)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("format",), "1"),
        (("format",), 3),
        (("domain", "axes"), []),
        (("domain", "axes", 0, "lo"), "0"),
        (("domain", "bits"), 32),
        (("method", "noise"), "laplace"),
        (("method", "estimate"), None),
        (("method", "structure", "configuration", "height"), -1),
        (("method", "budget", "configuration"), {"shares": [0.5]}),
        (("method", "budget", "configuration"), {}),
        (("privacy", "private"), "yes"),
        (("privacy", "epsilon"), 0),
        (("privacy", "epsilon_exact"), "0.5"),
        (("privacy", "ledger"), []),
        (("privacy", "ledger", 0, "epsilon_exact"), "-1/2"),
        (("provenance", "created"), "yesterday"),
        (("tree", "splits", 0, 0), 0),
        (("tree", "nodes"), 0),
    ],
)
def test_a_broken_header_does_not_fit_the_schema(place: tuple[Any, ...], value: object, tmp_path: Path) -> None:
    header = header_of(tmp_path, method=LEVELS_WITH_ZEROS)
    assert is_valid(header)
    broken = copy.deepcopy(header)
    inner = broken
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    assert not is_valid(broken)


@pytest.mark.parametrize("key", SCHEMA["required"])
def test_a_header_that_lacks_a_part_does_not_fit_the_schema(key: str, tmp_path: Path) -> None:
    header = header_of(tmp_path, method="quad-opt", height=2)
    del header[key]
    assert not is_valid(header)
