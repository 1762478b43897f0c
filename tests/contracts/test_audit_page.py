"""Check that AUDIT.md, the proofs and the code agree. Run as a program, this prints the lines of code per file."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilmap.domain import Domain
from veilmap.kernels.counting import add_axis
from veilmap.trees import CutTree, RegularTree

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "veilmap"
PROOFS = sorted((ROOT / "proofs").glob("*.md"))
PAGES = [ROOT / "AUDIT.md", *PROOFS]
FURTHER_MECHANISMS = [
    SOURCE / f"{name}.py"
    for name in (
        "kernels/box_medians",
        "kernels/hilbert",
        "kernels/median_ranks",
        "kernels/roughness",
        "kernels/smooth_sensitivity",
        "vault/mechanisms/density_test",
        "vault/mechanisms/exponential",
        "vault/mechanisms/gaussian",
        "vault/mechanisms/medians",
        "vault/mechanisms/private_median",
        "vault/mechanisms/residuals",
        "vault/mechanisms/roughness",
        "vault/mechanisms/sampling",
        "vault/mechanisms/smooth",
    )
]
COUNTING = [
    SOURCE / f"{name}.py"
    for name in (
        "kernels/counting",
        "vault/rows",
        "vault/tracked_rows",
        "engines/tally",
        "vault/stream",
        "engines/batches",
        "engines/spill",
        "engines/spark",
    )
]
CORE = [
    *(path for path in sorted((SOURCE / "vault").rglob("*.py")) if path not in [*FURTHER_MECHANISMS, *COUNTING]),
    *(SOURCE / name for name in ("validation.py", "trees.py")),
]
ENGINES = [path for path in sorted((SOURCE / "engines").glob("*.py")) if path not in COUNTING]
READERS = [
    *(path for path in sorted((SOURCE / "geofiles").glob("*.py")) if path.stem != "zone_reader"),  # which reads no rows
    SOURCE / "kernels" / "parsing.py",
]
LEDGER = [SOURCE / "releases" / "ledger_file.py"]
MAX_CODE_LINES_PER_GROUP = 1000
MAX_WORDS_PER_PROOF = 1600


def code_lines(path: Path) -> int:
    """Return the number of lines that are not blank, not a comment and not part of a docstring."""
    text = path.read_text()
    quiet = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in {*quiet, tokenize.ENDMARKER}:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def listed() -> list[str]:
    """Return the source files in the tables of AUDIT.md."""
    return re.findall(r"^\| `(src/[\w/.]+)` \|", (ROOT / "AUDIT.md").read_text(), re.MULTILINE)


def short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# --- the page and the code --------------------------------------------------------------------------------------


def test_every_trusted_file_is_on_the_page_once() -> None:
    assert sorted(listed()) == sorted(
        short(p) for p in [*CORE, *FURTHER_MECHANISMS, *COUNTING, *ENGINES, *READERS, *LEDGER]
    )


def test_trusted_core_can_be_read_in_one_sitting() -> None:
    assert sum(map(code_lines, CORE)) < MAX_CODE_LINES_PER_GROUP
    for apart in (FURTHER_MECHANISMS, COUNTING, ENGINES, READERS, LEDGER):  # AUDIT.md says so
        assert sum(map(code_lines, apart)) < MAX_CODE_LINES_PER_GROUP


def test_code_lines_are_counted_as_promised(tmp_path: Path) -> None:
    page = tmp_path / "some.py"
    page.write_text(
        '"""Doc.\n\nMore.\n"""\n\n# comment\nx = (\n    1,  # why\n)\n\n\ndef f():\n    """Doc."""\n    return x\n'
    )
    assert code_lines(page) == 5


def test_reading_order_begins_at_the_front_door_and_ends_at_the_gate() -> None:
    core = [name for name in listed() if ROOT / name in CORE]
    assert core[0] == "src/veilmap/vault/__init__.py"
    assert "def measure(" in (ROOT / core[-1]).read_text()


# --- the proofs and the code ------------------------------------------------------------------------------------


def named_proofs() -> list[tuple[str, str]]:
    return [
        (short(path), name)
        for path in sorted(SOURCE.rglob("*.py"))
        for name in re.findall(r"Proof: (proofs/\w+\.md)", ast.get_docstring(ast.parse(path.read_text())) or "")
    ]


def test_every_file_of_the_vault_names_its_proof() -> None:
    files = {file for file, _ in named_proofs()}
    assert files >= {short(p) for p in (SOURCE / "vault").glob("*.py") if p.stem != "__init__"}


@pytest.mark.parametrize(("file", "proof"), named_proofs())
def test_proof_that_code_names_is_there_and_names_the_code(file: str, proof: str) -> None:
    assert file in (ROOT / proof).read_text()
    assert f"({proof})" in next(line for line in (ROOT / "AUDIT.md").read_text().splitlines() if f"`{file}`" in line)


def test_every_proof_is_on_the_page() -> None:
    page = (ROOT / "AUDIT.md").read_text()
    assert set(re.findall(r"\((proofs/\w+\.md)\)", page)) == {short(p) for p in PROOFS}


@pytest.mark.parametrize("path", PROOFS, ids=lambda p: p.stem)
def test_proof_page_has_all_its_parts(path: Path) -> None:
    text = path.read_text()
    assert re.findall(r"^## (\w+)", text, re.MULTILINE) == ["Claim", "Neighbours", "Argument", "Code", "Test"]
    assert len(text.split()) < MAX_WORDS_PER_PROOF


def names_in(path: Path) -> set[str]:
    """Return the names of all functions and classes of a file, including nested ones."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)}


@pytest.mark.parametrize("path", PROOFS, ids=lambda p: p.stem)
def test_code_that_a_proof_names_is_there(path: Path) -> None:
    part = path.read_text().partition("## Code")[2].partition("## ")[0]
    lines = re.findall(r"^- `(src/[\w/.]+)::(.+)$", part, re.MULTILINE)
    assert lines
    for file, rest in lines:
        named = set(re.findall(r"\w+", rest))
        assert named <= names_in(ROOT / file), (file, named - names_in(ROOT / file))


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_every_test_that_a_page_names_is_there(path: Path) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", path.read_text())
    assert named
    for file, test in named:
        assert test in names_in(ROOT / file), f"{file}::{test}"


def test_every_test_of_the_threat_model_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "SECURITY.md").read_text())
    assert len(named) > 20
    for file, test in named:
        assert test in names_in(ROOT / file), f"{file}::{test}"


@pytest.mark.parametrize("path", [*PAGES, ROOT / "SECURITY.md"], ids=lambda p: p.stem)
def test_links_of_a_page_lead_somewhere(path: Path) -> None:
    for link in re.findall(r"\]\(([\w/.-]+)\)", path.read_text()):
        assert (path.parent / link).exists(), link


# --- what proofs/counting.md depends on ----------------------------------------------------------------------------

splits = st.integers(1, 3).flatmap(
    lambda axes: st.lists(st.tuples(*[st.integers(1, 3)] * axes), min_size=0, max_size=3).map(lambda s: (axes, s))
)


@given(splits, st.sampled_from([27, 32, 50]))
def test_leaves_of_any_tree_partition_the_domain(shape: tuple[int, list[tuple[int, ...]]], side: int) -> None:
    axes, cuts = shape
    tree = CutTree.root(side, axes)
    for parts in cuts:
        tree = tree.refine(parts)
    cells = np.random.default_rng(0).integers(0, side, (50, axes))
    for level in range(tree.height + 1):
        lo, hi = tree.lo[tree.level(level)], tree.hi[tree.level(level)]
        assert int(np.prod(hi - lo, axis=1).sum()) == side**axes
        inside = ((lo <= cells[:, None]) & (cells[:, None] < hi)).all(axis=2)
        assert (inside.sum(axis=1) == 1).all()


@given(splits)
def test_place_of_a_node_is_the_sum_of_its_offsets(shape: tuple[int, list[tuple[int, ...]]]) -> None:
    axes, cuts = shape
    tree = RegularTree(54, axes, tuple(cuts))
    for level in range(tree.height + 1):
        grid, offsets = tree.grid(level), tree.offsets(level)
        lo = tree.lo[tree.level(level)]
        # find the corner of node (x, y, …) from the sorted corners of each axis
        corners = [np.unique(lo[:, a]) for a in range(axes)]
        assert tuple(map(len, corners)) == grid
        for place in np.ndindex(*grid):
            node = sum(int(offsets[a][x]) for a, x in enumerate(place))
            assert lo[node].tolist() == [int(corners[a][x]) for a, x in enumerate(place)]
            assert tree.places(level)[place] == tree.level_start[level] + node


values = st.floats(allow_nan=True, allow_infinity=True) | st.floats(-3.0, 9.0) | st.sampled_from([-1.0, 5.0, 2.0])


@given(st.lists(values, min_size=1, max_size=30))
def test_cell_of_a_row_does_not_depend_on_other_rows(column: list[float]) -> None:
    domain = Domain({"x": (-1, 5)}, bits=6)

    def cells(rows: list[float]) -> list[int]:
        index = np.zeros(len(rows), np.int32)
        add_axis(np.array(rows), -1.0, 5.0, domain.scale(0), domain.bits, domain.side, index)
        return index.tolist()

    together = cells(column)
    assert together == [cells([x])[0] for x in column]
    for x, cell in zip(column, together, strict=True):
        assert (cell == -1) == (not -1 <= x <= 5)
        assert -1 <= cell < domain.side


def test_dropped_row_stays_dropped_on_later_axes() -> None:
    index = np.zeros(3, np.int32)
    add_axis(np.array([0.5, np.nan, 0.5]), 0.0, 1.0, 4.0, 2, 4, index)
    add_axis(np.array([0.5, 0.5, 7.0]), 0.0, 1.0, 4.0, 2, 4, index)
    assert index.tolist() == [10, -1, -1]


if __name__ == "__main__":
    kinds = {
        "trusted core": CORE,
        "further mechanisms": FURTHER_MECHANISMS,
        "how rows are counted": COUNTING,
        "engines": ENGINES,
        "how files are read": READERS,
        "ledger file": LEDGER,
    }
    for title, files in kinds.items():
        for file in files:
            print(f"{code_lines(file):6}  {short(file)}")
        print(f"{sum(map(code_lines, files)):6}  {title}\n")
