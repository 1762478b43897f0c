"""Who may import whom: the contracts of pyproject.toml hold, and each of them breaks when it is violated."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import veilmap

ROOT = Path(__file__).parents[2]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
ONE_WAY, FRONT_DOOR, DATA = "Data flows one way", "Only the vault's front door is used", "Only the vault opens the data"
LINT = "import sys; from importlinter.cli import lint_imports_command as lint; sys.argv[0] = 'lint-imports'; lint()"


def python(code: str, *arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "COLUMNS": "200", "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def lint(folder: Path) -> tuple[int, str]:
    done = python(LINT, "--no-cache", "--no-logo", folder=folder)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A copy of the house to do damage in."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_contracts_are_kept() -> None:
    code, said = lint(ROOT)
    assert code == 0, said
    for contract in CONTRACTS:
        assert f"{contract['name']} KEPT" in said


VIOLATIONS = [
    (ONE_WAY, "domain", "import veilmap.structures"),
    (ONE_WAY, "kernels/counting", "import veilmap.domain"),
    (ONE_WAY, "structures/quadtree", "import veilmap.vault"),
    (ONE_WAY, "budgets", "import veilmap.vault"),
    (ONE_WAY, "vault/sealed", "import veilmap.estimate"),
    (ONE_WAY, "answers/answerer", "def late():\n    import veilmap.releases.make"),
    (ONE_WAY, "errors", "import veilmap.cli"),
    (FRONT_DOOR, "answers/answerer", "import veilmap.vault.mechanisms.laplace"),
    (FRONT_DOOR, "releases/make", "from veilmap.vault.sealed import Sealed"),
    (FRONT_DOOR, "planning/planner", "from veilmap.vault.entropy import fixed_entropy"),
    (FRONT_DOOR, "releases/privacy", "from veilmap.vault.budget_meter import BudgetMeter"),
    (FRONT_DOOR, "estimate/__init__", "import veilmap.vault.mechanisms.laplace"),
    (DATA, "releases/make", "from veilmap.engines import open_points"),
    (DATA, "plot/theme", "import veilmap.engines.arrays"),
    (DATA, "estimate/__init__", "def late():\n    from veilmap.engines.batches import count_batches"),
]


@pytest.mark.parametrize(("contract", "module", "line"), VIOLATIONS)
def test_contract_breaks_when_it_is_violated(house: Path, contract: str, module: str, line: str) -> None:
    with open(house / "src" / "veilmap" / f"{module}.py", "a") as file:
        file.write(f"\n\n{line}\n")
    code, said = lint(house)
    offender = "veilmap." + module.removesuffix("/__init__").replace("/", ".")
    target = re.search(r"veilmap[\w.]*", line)[0]
    assert code != 0
    assert f"{contract} BROKEN" in said
    assert f"- {offender} -> {target} (l." in said


def test_every_contract_is_shown_to_break() -> None:
    assert {name for name, _, _ in VIOLATIONS} == {contract["name"] for contract in CONTRACTS}


def test_every_room_of_the_house_is_in_a_layer() -> None:
    """A module that no contract names is a way around them all."""
    named = {
        name.strip()
        for contract in CONTRACTS
        for layer in contract.get("layers", ())
        for name in re.split("[|:]", layer)
    }
    there = {
        f"veilmap.{path.stem}"
        for path in (ROOT / "src" / "veilmap").iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").exists()) and path.stem != "__init__"
    }
    assert there - named == {"veilmap.testing"}  # for tests alone; what it may import is said by name


def test_every_file_of_the_vault_is_protected() -> None:
    protected = next(c["protected_modules"] for c in CONTRACTS if c["name"] == FRONT_DOOR)
    vault = ROOT / "src" / "veilmap" / "vault"
    inside = {
        ".".join(f.relative_to(vault).with_suffix("").parts).removesuffix(".__init__") for f in vault.rglob("*.py")
    }
    assert set(protected) == {f"veilmap.vault.{name}" for name in inside - {"__init__"}}


# --- what is public ---------------------------------------------------------------------------------------------


def test_importing_veilmap_loads_nothing_heavy() -> None:
    heavy = "{'numpy', 'numba', 'pyarrow', 'cryptography', 'scipy', 'typer', 'rich', 'shapely', 'matplotlib'}"
    done = python(f"import sys, veilmap; print(sorted({heavy} & set(sys.modules)))")
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_counting_arrays_loads_no_other_engine() -> None:
    code = (
        "import sys, veilmap as vm; "
        "vm.release([[0.5, 0.5]], vm.Domain({'x': (0, 1), 'y': (0, 1)}), epsilon=1); "
        "others = {'duckdb', 'pyspark', 'pyogrio', 'geopandas', 'matplotlib', 'pandas', 'polars'}; "
        "print(sorted(others & set(sys.modules)))"
    )
    done = python(code)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


@pytest.mark.parametrize("name", veilmap.__all__)
def test_public_name_resolves(name: str) -> None:
    assert getattr(veilmap, name) is not None
    assert name in dir(veilmap)


def test_name_that_is_not_there_is_refused_as_by_any_module() -> None:
    with pytest.raises(AttributeError, match="no attribute 'relaese'"):
        _ = veilmap.relaese


def test_public_names_have_no_seed_and_no_default_epsilon() -> None:
    import inspect

    for name in veilmap.__all__:
        thing = getattr(veilmap, name)
        if inspect.isfunction(thing) or (inspect.isclass(thing) and not issubclass(thing, Exception)):
            parameters = inspect.signature(thing).parameters
            assert not {"seed", "random_state", "rng"} & set(parameters), name
            if "epsilon" in parameters and inspect.isfunction(thing):
                assert parameters["epsilon"].default is inspect.Parameter.empty, name
