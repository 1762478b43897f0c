"""The gate, from the side of a structure that is careless, or means harm."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from veilmap.budgets import LeafOnly
from veilmap.domain import Domain
from veilmap.errors import BadInput, BudgetSpent
from veilmap.method.method import Method
from veilmap.structures import Gate, Structure
from veilmap.testing import fixed_entropy
from veilmap.vault import NoisyTree, measure, seal

LINE = Domain({"x": (0, 1)}, bits=6)


@dataclass
class Script(Structure):
    """A structure that does as it is told."""

    steps: Callable[[Gate, Fraction], None]
    height: None = field(default=None, init=False)

    def nodes(self, dimensions: int) -> None:
        return None

    def grow(self, gate: Gate, epsilon: Fraction, budget: object) -> None:
        self.steps(gate, epsilon)


def run(steps: Callable[[Gate, Fraction], None], domain: Domain = LINE) -> NoisyTree:
    points = np.random.default_rng(1).random((200, domain.dimensions))
    with fixed_entropy(1):
        return measure(seal(points, domain), Method(structure=Script(steps), budget=LeafOnly()), Fraction(1)).tree


class Lies(Fraction):
    def __gt__(self, other: object) -> bool:
        return False

    def __le__(self, other: object) -> bool:
        return False


class Anything:
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __index__(self) -> int:
        return 0


@pytest.mark.parametrize(
    "call",
    [
        lambda gate, eps: gate.count(0, Lies(1000)),
        lambda gate, eps: gate.count(Anything(), eps),
        lambda gate, eps: gate.refine([2]),
        lambda gate, eps: gate.medians(Anything(), eps, Fraction(0), "exponential"),
        lambda gate, eps: gate.medians(0, eps, Fraction(0), type("Text", (str,), {})("exponential")),
        lambda gate, eps: gate.count(0, 0.5),
    ],
    ids=range(6),
)
def test_only_plain_values_pass(call: Callable[[Gate, Fraction], Any]) -> None:
    with pytest.raises((BadInput, BudgetSpent)):
        run(call)


def test_arrays_that_are_changed_later_change_nothing() -> None:
    """What a structure gave or was given is a copy."""

    def steps(gate: Gate, epsilon: Fraction) -> None:
        at = np.array([20])
        gate.cut(0, at, None)
        at[:] = 60
        counts = gate.count(1, epsilon / 2)
        counts[:] = 7
        epsilon._numerator *= 10**6  # type: ignore[attr-defined]

    noisy = run(steps)
    assert noisy.tree.hi[1, 0] == 20
    assert noisy.noisy_count[1:].tolist() != [7, 7]
    assert sum(c.epsilon for c in noisy.charges) == Fraction(1, 2)


@pytest.mark.parametrize("name", ["lo", "hi", "children", "first_child", "is_leaf", "parent", "node_level"])
@pytest.mark.parametrize("cut", [False, True])
def test_trees_cannot_be_written_to(name: str, cut: bool) -> None:
    def steps(gate: Gate, epsilon: Fraction) -> None:
        if cut:
            gate.cut(0, np.array([20]), None)
        gate.refine((2,))
        for tree in (gate.tree(), gate.boxes()):
            with pytest.raises(ValueError, match="read-only"):
                getattr(tree, name)[:] = 1
        gate.count_leaves(epsilon)

    run(steps)


def test_dense_boxes_are_not_asked_again_of_a_tree_that_was_shortened() -> None:
    """Boxes that grow larger from level to level would each lose as much as the first."""

    def steps(gate: Gate, epsilon: Fraction) -> None:
        gate.dense(epsilon / 2)
        gate.refine((64,))
        gate.dense(epsilon / 2)
        gate.shorten(1)

    with pytest.raises(BadInput, match="not after a density test"):
        run(steps)


def test_other_threads_are_refused() -> None:
    said: list[str] = []

    def steps(gate: Gate, epsilon: Fraction) -> None:
        def other() -> None:
            try:
                gate.count(0, epsilon)
            except BadInput as error:
                said.append(str(error))

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        gate.count(0, epsilon)

    run(steps)
    assert said == ["The gate serves one call at a time, from one thread, and only while the tree grows."]


def test_the_gate_is_shut_once_the_tree_has_grown() -> None:
    kept: list[Gate] = []

    def steps(gate: Gate, epsilon: Fraction) -> None:
        kept.append(gate)
        gate.count(0, epsilon / 2)

    run(steps)
    with pytest.raises(BadInput, match="only while the tree grows"):
        kept[0].medians(0, Fraction(1, 2), Fraction(0), "exponential")
    with pytest.raises(BadInput, match="only while the tree grows"):
        kept[0].tree()
