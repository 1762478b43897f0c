"""The examples in the docstrings of public names run, and print what they show."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest

import veilmap as vm

WITH_EXAMPLES = ("Domain", "Ledger", "Plan", "Privacy", "Release", "audit", "load", "plan", "release")
BUDGETS = ("Geometric", "LeafOnly", "Levels", "Uniform", "Workload")
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def shared_names() -> dict[str, object]:
    """What every example may use: 2,000 points around one town, and a domain that contains them."""
    points = np.random.default_rng(1).normal([-115, 40], 1, (2000, 2))
    return {"vm": vm, "np": np, "points": points, "domain": vm.Domain({"lon": (-125, -103), "lat": (31, 49)})}


def examples_of(name: str) -> list[doctest.DocTest]:
    """The examples of a public name and, of a class, those of its own public methods."""
    thing = getattr(vm, name)
    documented = {name: thing}
    if inspect.isclass(thing):
        documented |= {
            f"{name}.{method}": value
            for method, value in vars(thing).items()
            if isinstance(value, FunctionType | classmethod | property) and not method.startswith("_")
        }
    parser = doctest.DocTestParser()
    tests = [
        parser.get_doctest(inspect.getdoc(value) or "", shared_names(), full_name, None, None)
        for full_name, value in documented.items()
    ]
    return [test for test in tests if test.examples]


@pytest.mark.parametrize("name", vm.__all__)
def test_examples_print_what_they_show(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runner, report = doctest.DocTestRunner(optionflags=FLAGS), []
    for test in examples_of(name):
        runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)


@pytest.mark.parametrize("name", [*WITH_EXAMPLES, *BUDGETS])
def test_the_names_that_most_people_use_have_examples(name: str) -> None:
    assert any(test.name == name for test in examples_of(name))


@pytest.mark.parametrize("name", vm.__all__)
def test_no_example_is_skipped(name: str) -> None:
    for test in examples_of(name):
        assert not any(doctest.SKIP in example.options for example in test.examples)


def test_the_examples_of_the_package_run() -> None:
    test = doctest.DocTestParser().get_doctest(vm.__doc__ or "", shared_names(), "veilmap", None, None)
    runner, report = doctest.DocTestRunner(optionflags=FLAGS), []
    runner.run(test, out=report.append)
    assert test.examples
    assert not runner.failures, "".join(report)


def test_an_example_that_is_wrong_is_found() -> None:
    wrong = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, None)
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    runner.run(wrong, out=lambda _: None)
    assert runner.failures == 1
