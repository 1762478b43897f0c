"""Private record matching: what is compared holds the matches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import veilmap as vm
from veilmap.errors import BadInput
from veilmap.kernels.pairs import close_pairs, find_leaves
from veilmap.matching import compare_securely, fill
from veilmap.testing import fixed_entropy
from veilmap.tree import CutTree

PEOPLE = vm.Domain({"age": (16.5, 90.5), "hours": (0.5, 99.5)})


def people(n: int, seed: int = 0) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    age = np.clip(rng.gamma(6, 7, n) + 17, 17, 90).round()
    return np.stack([age, np.clip(rng.normal(40, 12, n), 1, 99).round()], axis=1)


def naive_pairs(left: NDArray[np.float64], right: NDArray[np.float64], apart: list[float]) -> set[tuple[int, int]]:
    near = itertools.product(range(len(left)), range(len(right)))
    return {(i, j) for i, j in near if all(abs(left[i] - right[j]) <= np.array(apart))}


records = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), max_size=12)


@given(records, records, st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=2, max_size=2))
def test_close_pairs_are_those_of_the_twin(left: list, right: list, apart: list[float]) -> None:
    sides = [np.array(side, float).reshape(-1, 2) for side in (left, right)]
    found = close_pairs(*sides, np.array(apart))
    assert sorted(map(tuple, found.tolist())) == sorted(naive_pairs(*sides, apart))


def test_every_row_is_in_the_leaf_that_holds_it() -> None:
    tree = CutTree.root(32, 2).cut(0, np.array([5])).split(np.array([[0, 0], [3, 2]]))
    tree = tree.cut(1, tree.hi[3:, 1] - 1)
    cells = np.array([*itertools.product(range(32), range(32)), (-1, 3), (3, -1)])
    leaf = np.empty(len(cells), np.int64)
    find_leaves(tree.first_child, tree.lo, tree.hi, cells, leaf)
    assert leaf[-2:].tolist() == [-1, -1]
    for cell, v in zip(cells[:-2], leaf, strict=False):
        assert tree.is_leaf[v]
        assert all(tree.lo[v] <= cell)
        assert all(cell < tree.hi[v])


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["kd-standard", "kd-noisymean", "quad-baseline", "kd-hybrid"]),
    st.sampled_from([(0.0, 0.0), (2.0, 5.0), (1.0, 0.0), (0.3, 40.0)]),
)
def test_candidates_hold_every_match_of_records_that_have_a_slot(seed: int, method: str, apart: tuple) -> None:
    """Ties and borders included: whole numbers, many of them equal, and boxes that touch."""
    left, right = people(120, seed), people(150, seed + 1)
    with fixed_entropy(seed):
        found = vm.match(left, right, apart, 0.5, method, domain=PEOPLE, height=3)
    candidates = set(map(tuple, found.candidates.tolist()))
    assert len(candidates) == len(found.candidates)
    truth = naive_pairs(left, right, list(apart))
    assert found.matches == len(truth)
    kept = truth & candidates
    assert found.recall == pytest.approx(len(kept) / len(truth) if truth else 1)
    # whoever has a slot in a box that is compared is there; whoever has none lost it to chance
    placed = [{i for i, _ in candidates}, {j for _, j in candidates}]
    assert all((i, j) in candidates for i, j in truth if i in placed[0] and j in placed[1])
    assert len(candidates) <= found.work


def test_slots_are_filled_and_never_overfilled() -> None:
    points = people(2000)
    found = vm.match(points, points, (0, 0), 1, domain=PEOPLE, height=3)
    assert found.recall > 0.9  # of about 4,000 matches
    held = fill(points, found.left, PEOPLE)
    assert all(len(box) <= slots for box, slots in zip(held, found.left.slots, strict=True))
    assert sum(map(len, held)) > 1900
    assert len(np.unique(np.concatenate(held))) == sum(map(len, held))


def test_medians_reduce_the_work_most() -> None:
    pool = people(9000)
    with fixed_entropy(2):
        ratio = {
            name: vm.match(pool[:6000], pool[3000:], (2, 5), 0.5, name, domain=PEOPLE, height=3).reduction_ratio
            for name in ("kd-standard", "quad-baseline")
        }
    assert ratio["kd-standard"] > ratio["quad-baseline"] > 0


def test_only_the_leaves_are_counted() -> None:
    found = vm.match(people(500), people(500, 1), (2, 5), "0.5", domain=PEOPLE, height=2)
    for side in (found.left, found.right):
        assert side.release.privacy.spent == side.release.privacy.epsilon
        assert [c.what for c in side.release.privacy.ledger if "counts" in c.what] == ["counts of level 4"]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"left": [1, 2, 3]}, "Records are an array of numbers with a column for each of age, hours"),
        ({"left": [["a", "b"]]}, "Records are an array of numbers"),
        ({"thresholds": (1,)}, "one number of 0 or more for each of age, hours, got"),
        ({"thresholds": (1, -2)}, "0 or more"),
        ({"thresholds": (1, float("nan"))}, "0 or more"),
        ({"thresholds": "ab"}, "0 or more"),
        ({"epsilon": 0}, "epsilon must be a number"),
        ({"method": "kd-standrad"}, "Did you mean 'kd-standard'"),
    ],
)
def test_bad_arguments_are_refused_with_a_sentence(changed: dict, sentence: str) -> None:
    arguments = {"left": people(9), "right": people(9), "thresholds": (2, 5), "epsilon": 1, "domain": PEOPLE}
    with pytest.raises(BadInput, match=sentence):
        vm.match(**arguments | changed)


def test_the_secure_step_finds_the_matches_among_the_candidates() -> None:
    pytest.importorskip("nacl.bindings", reason="the extra 'match' is not installed")
    left, right, apart = people(25), people(25, 1), (2, 5)
    found = vm.match(left, right, apart, 1, domain=PEOPLE, height=2)
    secret = compare_securely(left, right, found.candidates, apart, domain=PEOPLE)
    truth = naive_pairs(left, right, list(apart)) & set(map(tuple, found.candidates.tolist()))
    assert truth
    assert set(map(tuple, secret.tolist())) == truth


@pytest.mark.parametrize(("left", "apart"), [([[20.5, 3]], (1, 1)), ([[20, 3]], (1.5, 1)), ([[np.nan, 3]], (1, 1))])
def test_the_secure_step_refuses_what_is_not_whole(left: list, apart: tuple) -> None:
    pytest.importorskip("nacl.bindings", reason="the extra 'match' is not installed")
    with pytest.raises(BadInput, match="whole"):
        compare_securely(left, [[20, 3]], np.array([[0, 0]]), apart, domain=PEOPLE)
