"""The owner's verb on arrays: what is spent, what is refused, what always works."""

from __future__ import annotations

from dataclasses import fields
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import veilmap as vm
from tests import naive
from veilmap.errors import TooLarge
from veilmap.method.registry import METHODS
from veilmap.testing import fixed_entropy
from veilmap.vault import noise_variance
from veilmap.vault.mechanisms.gaussian import concentrated

PLANE = vm.Domain({"lon": (-10, 10), "lat": (0, 5)})
RNG = np.random.default_rng(0)
POINTS = PLANE.lo + RNG.random((500, 2)) * (PLANE.hi - PLANE.lo)
EVERYWHERE = [-10, 0, 10, 5]
QUADTREES = [name for name in METHODS if name.startswith("quad-")]
KD_TREES = [name for name in METHODS if name.startswith("kd-")]
YARDSTICKS = {"kd-true", "kd-pure"}
FREE = [name for name, m in METHODS.items() if "height" not in {f.name for f in fields(m.structure)}]
MEDIANS = {"kd-noisymean": "noisy-mean"} | dict.fromkeys(("kd-standard", "kd-hybrid", "hilbert-r"), "exponential")
PEOPLE = {"unit": np.arange(500) // 5, "max_rows_per_unit": 3}
CHANCE = Fraction(1, 10**6)


def published(points, domain, epsilon, method, height=None, **more):
    """A release by any method: without a height if it has none to set, and with permission if it needs that."""
    height = None if method in FREE else height
    return vm.release(points, domain, epsilon, method, height, allow_nonprivate=method in YARDSTICKS, **more)


def space(axes):
    return vm.Domain({f"x{a}": (0, 1) for a in range(axes)})


def charges(release):
    return [(charge.what, charge.epsilon) for charge in release.privacy.ledger]


# What is spent


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("height", [None, 0, 3])
@pytest.mark.parametrize("epsilon", [0.1, "1/3", 7])
def test_the_ledger_adds_up_to_epsilon_exactly(method, height, epsilon):
    if method in FREE and height is not None:
        with pytest.raises(vm.BadInput, match=rf"{method} has no option height\. Leave it out"):
            vm.release(POINTS, PLANE, epsilon, method, height)
        return
    privacy = published(POINTS, PLANE, epsilon, method, height).privacy
    assert privacy.spent == privacy.epsilon == Fraction(str(epsilon))
    used = {"none" if method == "kd-pure" else "discrete-laplace"}
    used |= {MEDIANS[method]} if method in MEDIANS and height != 0 else set()
    used |= {"privtree"} if method == "privtree" else set()
    assert set(privacy.mechanisms) == used
    assert len(privacy.mechanisms) == len(used)
    assert (privacy.delta, privacy.rho) == (0, None)
    assert privacy.private == (method not in YARDSTICKS or (method, height) == ("kd-true", 0))  # it had no median


def test_a_height_that_is_not_given_is_paid_for_by_the_count_of_the_root():
    release = vm.release(POINTS, PLANE, 0.5, "quad-opt")
    assert charges(release)[0] == ("noisy counts of level 0", Fraction(1, 2) / 50)
    assert [what for what, _ in charges(release)] == [f"noisy counts of level {i}" for i in range(release.height + 1)]


@pytest.mark.parametrize("method", ["best", "quad-opt"])
def test_a_chosen_height_follows_the_noisy_total(method):
    few, many = RNG.random((10, 2)), RNG.random((10**5, 2))
    with fixed_entropy(1):
        assert vm.release(few, space(2), 1, method).height < vm.release(many, space(2), 1, method).height


def test_a_given_height_shares_epsilon_by_the_methods_budget():
    release = vm.release(POINTS, PLANE, 1, "quad-baseline", height=3)
    assert charges(release) == [(f"noisy counts of level {i}", Fraction(1, 4)) for i in range(4)]


@pytest.mark.parametrize("estimate", vm.Estimate)
@pytest.mark.parametrize(
    ("budget", "paid"),
    [(vm.Levels([0, 1, 0, 3]), {1: Fraction(1, 8), 3: Fraction(3, 8)}), (vm.LeafOnly(), {3: Fraction(1, 2)})],
)
def test_a_method_by_hand_may_skip_levels(estimate, budget, paid):
    method = vm.Method(structure=vm.Quadtree(3), budget=budget, estimate=estimate)
    release = vm.release(POINTS, PLANE, 0.5, method)
    nodes = release.estimates
    assert dict(charges(release)) == {f"noisy counts of level {i}": epsilon for i, epsilon in paid.items()}
    assert np.array_equal(np.isfinite(nodes.noise_variance), np.isin(nodes.tree.node_level, list(paid)))
    assert not np.any(nodes.noisy_count[np.isinf(nodes.noise_variance)])
    assert np.all(np.isfinite(release.count([[-3, 1, 4, 2], EVERYWHERE]).stderr))


def test_a_method_by_hand_without_a_height_pays_for_one_too():
    release = vm.release(POINTS, PLANE, 1, vm.Method(structure=vm.Quadtree(), budget=vm.LeafOnly()))
    assert charges(release) == [
        ("noisy counts of level 0", Fraction(1, 50)),
        (f"noisy counts of level {release.height}", Fraction(49, 50)),
    ]


# What is published


@pytest.mark.parametrize(
    ("method", "axes"),
    [(m, axes) for m in METHODS for axes in range(1, 9) if m != "hilbert-r" and (axes < 3 or m not in FREE)],
)
def test_at_the_largest_epsilon_a_release_is_the_truth(method, axes):
    """Of ranges of a curve this is tested at the gate: their boxes hold more than they do."""
    points, domain = RNG.uniform(-0.1, 1.1, (60, axes)), space(axes)
    with fixed_entropy(1):  # no level has less than ε = 11, where one count in 30,000 has any noise
        nodes = published(points, domain, 100, method, height=3 if axes < 3 else 1).estimates
    truth = np.array(naive.node_counts(points, domain, nodes.tree))
    measured = np.isfinite(nodes.noise_variance)
    assert measured.all() or method not in QUADTREES
    measured[0] &= "grid" not in method and method != "best"  # it has a fiftieth, or a hundredth
    assert nodes.noisy_count[measured].tolist() == truth[measured].tolist()
    assert not nodes.noisy_count[np.isinf(nodes.noise_variance)].any()
    if method != "kd-pure":  # which says nothing of the levels between those it counts
        assert nodes.estimate == pytest.approx(truth, abs=1e-2)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("axes", range(1, 9))
def test_one_to_eight_axes_work_without_a_height(method, axes):
    if (method, axes) == ("hilbert-r", 1):
        with pytest.raises(vm.BadInput, match="A Hilbert curve has 2 or more axes and here an order of 1 to 31"):
            vm.release(RNG.random((50, 1)), space(1), 1, method)
        return
    with fixed_entropy(3):  # or some trees of kd-cell, in eight dimensions, are large by chance and take a minute
        release = published(RNG.random((50, axes)), space(axes), 1, method)
    assert release.estimates.tree.size < 2**22
    assert release.height >= (method != "kd-cell")  # which may see nothing but noise in 50 rows
    answer = release.count([0.0] * axes + [0.5] * axes)
    assert np.all(answer.low <= answer.high)
    assert (answer.error_parts.noise_variance > 0) == (method != "kd-pure")


@pytest.mark.parametrize("method", sorted(set(KD_TREES) - {"kd-cell"}))
@pytest.mark.parametrize("axes", range(4, 8))
def test_a_kd_tree_of_eight_levels_over_many_axes_is_refused_before_the_data_is_read(method, axes, monkeypatch):
    monkeypatch.setattr("veilmap.method.resources.free_memory", lambda: 2**30)
    monkeypatch.setattr("veilmap.releases.make.seal", lambda *_: pytest.fail("the data was touched"))
    with pytest.raises(TooLarge, match=r"would need \S+ GiB of memory; 1 GiB are free\. Choose a smaller height"):
        published(np.empty((0, axes)), space(axes), 1, method, 8)


def test_structures_and_budgets_are_set_by_name():
    boxes = [[-9, 1, -8, 2]]
    release = vm.release(
        POINTS, PLANE, 1, "kd-standard", 4, options={"fanout": 2, "switch": 1}, budget=vm.Workload(boxes)
    )
    assert release.method["structure"]["configuration"]["fanout"] == 2
    assert release.method["budget"]["name"] == "workload"
    with pytest.raises(
        vm.BadInput, match=r"^kd-standard has no option fanuot\. Leave it out\. Its options are height, switch, "
    ):
        vm.release(POINTS, PLANE, 1, "kd-standard", options={"fanuot": 2})
    with pytest.raises(vm.BadInput, match="kd-pure has exact counts"):
        vm.release(POINTS, PLANE, 1, "kd-pure", noise="discrete-laplace", allow_nonprivate=True)


@pytest.mark.parametrize(("axes", "levels"), [(1, 8), (2, 8), (3, 5), (4, 4), (5, 3), (8, 2)])
def test_kd_trees_have_a_height_that_suits_their_dimensions(axes, levels):
    release = vm.release(RNG.random((50, axes)), space(axes), 1, "kd-hybrid")
    assert release.method["structure"]["configuration"]["height"] == levels
    assert release.height == levels * axes


def test_the_default_is_best():
    release = vm.release(POINTS, PLANE, 1)
    assert release.method == vm.release(POINTS, PLANE, 1, "best").method
    assert release.method["name"] == "best"
    assert release.consistent
    assert release.estimates.slope.shape == (release.estimates.tree.size, 2)
    assert charges(release)[0] == ("noisy node counts", Fraction(1, 100))
    kinds = {what.split(" of level")[0] for what, _ in charges(release)}  # whether it looks closer is up to the noise
    assert kinds <= {"noisy node counts", "roughness", "calibration of error bars"}


def test_the_default_learns_how_uneven_rows_are_before_it_cuts_finely():
    points = PLANE.lo + RNG.random((20_000, 2)) * (PLANE.hi - PLANE.lo)
    looks = [charge for charge in charges(vm.release(points, PLANE, 1)) if "roughness" in charge[0]]
    assert looks == [("roughness of level 1", Fraction(1, 100))]
    few = [charge for charge in charges(vm.release(points[:3000], PLANE, 1)) if "roughness" in charge[0]]
    assert few == looks


def test_height_and_prune_shape_the_tree():
    assert vm.release(POINTS, PLANE, 1, "quad-opt", 4).estimates.tree.size == 1 + 4 + 16 + 64 + 256
    pruned = vm.release(POINTS, PLANE, 1, "quad-opt", 4, prune=1e9)
    assert pruned.estimates.tree.size == 1
    assert pruned.height == 0
    assert pruned.method["prune_below"] == 1e9
    assert pruned.count(EVERYWHERE).estimate == pruned.estimates.estimate[0]


@pytest.mark.parametrize(
    "points",
    [
        np.empty((0, 2)),
        np.full((20, 2), np.nan),
        np.full((20, 2), np.inf),
        np.full((20, 2), 99.0),
        np.array([[np.nan, 1.0], [1.0, np.nan], [-11.0, 1.0], [1.0, 5.1]]),
    ],
    ids=["no rows", "all NaN", "all infinite", "all outside", "one bad coordinate each"],
)
@pytest.mark.parametrize(("method", "height"), [("best", None), ("quad-opt", None), ("quad-opt", 2)])
def test_points_without_a_place_count_nowhere(points, method, height):
    with fixed_entropy(3):
        release = vm.release(points, PLANE, 10, method, height)
    answer = release.count(EVERYWHERE)
    assert answer.low == 0
    assert answer.high < 10


@pytest.mark.parametrize(("method", "height"), [("best", None), ("quad-opt", None), ("quad-opt", 5)])
def test_points_all_in_one_place_are_found_there(method, height):
    with fixed_entropy(4):
        release = vm.release(np.full((10_000, 2), 2.5), PLANE, 1, method, height)
    at, away = release.count([[0, 2.5, 10, 5], [-10, 0, 0, 2.5]]).estimate
    assert at == pytest.approx(10_000, abs=200)
    assert away == pytest.approx(0, abs=200)


@pytest.mark.parametrize(
    "same", [POINTS.tolist(), POINTS.astype(">f8"), np.asfortranarray(POINTS), POINTS[::-1]], ids=range(4)
)
@pytest.mark.parametrize(("method", "height"), [("best", None), ("quad-opt", 3)])
def test_the_form_of_an_array_does_not_matter(same, method, height):
    with fixed_entropy(5):
        expected = vm.release(POINTS, PLANE, 1, method, height).estimates.noisy_count
    with fixed_entropy(5):
        assert np.array_equal(vm.release(same, PLANE, 1, method, height).estimates.noisy_count, expected)


def test_whole_numbers_are_numbers_and_one_axis_may_be_flat():
    flat, domain = np.arange(8), vm.Domain({"x": (0, 8)})
    with fixed_entropy(6):
        release = vm.release(flat, domain, 100, "quad-baseline", 3)
    assert release.estimates.noisy_count[release.estimates.tree.is_leaf].tolist() == [1] * 8


def test_the_points_are_left_as_they_were():
    before = POINTS.copy()
    vm.release(POINTS, PLANE, 1)
    vm.release(POINTS, PLANE, 1, "quad-opt", 2)
    assert np.array_equal(POINTS, before)


# Other promises


def test_gaussian_noise_is_accounted_in_rho_and_stated_with_delta():
    release = vm.release(POINTS, PLANE, 0.5, "kd-hybrid", 2, noise="discrete-gaussian", delta=1e-6)
    privacy = release.privacy
    assert (privacy.epsilon, privacy.delta, privacy.rho) == (Fraction(1, 2), CHANCE, privacy.spent)
    assert sum(c.rho for c in privacy.ledger) == concentrated(Fraction(1, 2), CHANCE)
    assert not any(c.epsilon or c.delta for c in privacy.ledger)
    assert privacy.mechanisms == ("exponential", "discrete-gaussian")
    assert "(0.5, 1e-06)-differentially private for one row" in privacy.statement()
    assert "except with a probability of about 1e-06" in privacy.statement()


def test_smooth_sensitivity_states_its_delta():
    method = vm.Method(structure=vm.KdTree(2, median="smooth-sensitivity"))
    privacy = vm.release(POINTS, PLANE, 0.5, method, delta="1e-6").privacy
    assert sum(c.delta for c in privacy.ledger) == privacy.delta == CHANCE
    assert privacy.rho is None
    assert privacy.spent == Fraction(1, 2)


@pytest.mark.parametrize("method", [m for m in METHODS if m not in YARDSTICKS])
def test_people_with_many_rows_are_protected_whole(method):
    """Also where the height is chosen from a noisy count."""
    release = published(POINTS, PLANE, 0.5, method, **PEOPLE)
    assert release.privacy.unit == "one unit (3 rows at most)"
    assert "0.5-differentially private for one unit (3 rows at most)" in release.privacy.statement()
    assert release.privacy.spent == Fraction(1, 2)
    last = release.privacy.ledger[-1]
    assert last.mechanism == "discrete-laplace"
    assert release.estimates.noise_variance[-1] == noise_variance(last.epsilon / 3)


def test_the_column_of_the_people_is_named_in_the_promise():
    table = pa.table({"lon": POINTS[:, 0], "lat": POINTS[:, 1], "phone": PEOPLE["unit"]})
    release = vm.release(table, PLANE, 0.5, unit="phone", max_rows_per_unit=3)
    assert release.privacy.unit == "one phone (3 rows at most)"


def test_yardsticks_say_that_they_are_not_private_everywhere():
    for method in YARDSTICKS:
        release = vm.release(POINTS, PLANE, 0.5, method, 2, allow_nonprivate=True)
        assert "NOT PRIVATE" in repr(release)
        assert release.privacy.statement().startswith("NOT PRIVATE")
        assert not release.privacy.private
        assert release.header()["privacy"]["private"] is False
    assert release.privacy.private is False
    assert vm.release(POINTS, PLANE, 0.5, allow_nonprivate=True).privacy.private  # it was not needed


# Entropy


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("height", [None, 4])
def test_the_same_fixed_entropy_gives_the_same_release(method, height):
    def noisy_counts():
        with fixed_entropy(7):
            return published(POINTS, PLANE, 0.5, method, height).estimates.noisy_count

    assert np.array_equal(noisy_counts(), noisy_counts())


@pytest.mark.parametrize(("method", "height"), [("best", None), ("quad-opt", 4)])
def test_releases_differ_under_the_systems_entropy_and_under_one_fixed_entropy(method, height):
    def two():
        return [vm.release(POINTS, PLANE, 0.5, method, height).estimates.noisy_count for _ in range(2)]

    assert not np.array_equal(*two())
    with fixed_entropy(7):
        assert not np.array_equal(*two())


def test_a_release_with_fixed_entropy_says_that_it_is_not_private():
    with fixed_entropy(7):
        fixed = vm.release(POINTS, PLANE, 0.5)
    assert "NOT PRIVATE" in repr(fixed)
    assert "NOT PRIVATE" in fixed.privacy.statement()
    free = vm.release(POINTS, PLANE, 0.5, "quad-opt", 2)
    assert repr(free) == "<Release quad-opt, epsilon=0.5, 21 nodes over lon=-10.0:10.0,lat=0.0:5.0>"
    assert "0.5-differentially private for one row" in free.privacy.statement()


# What is refused


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"epsilon": 0}, "epsilon must be a number from 1e-06 to 100, got 0"),
        ({"epsilon": None}, "epsilon must be a number"),
        (
            {"domain": {"lon": (-10, 10), "lat": (0, 5)}},
            r"must be a veilmap.Domain, got dict\. It is never computed from",
        ),
        ({"domain": None}, r"must be a veilmap.Domain, got NoneType"),
        ({"method": "quad-otp"}, "no method 'quad-otp'. Did you mean 'quad-opt'"),
        ({"method": 7}, r"a name or a veilmap.Method, got int"),
        (
            {"method": METHODS["quad-geo"], "height": 3},
            "height, prune, sample, noise, budget and options need the name of a method",
        ),
        (
            {"method": METHODS["quad-geo"], "prune": 3},
            "height, prune, sample, noise, budget and options need the name of a method",
        ),
        ({"height": 3}, r"best has no option height\. Leave it out, or choose one of quad-"),
        ({"method": "quad-opt", "height": -1}, "0 or more, got -1"),
        ({"method": "quad-opt", "height": 2.0}, r"whole number, 0 or more, got 2\.0"),
        ({"method": "quad-opt", "height": True}, "whole number, 0 or more, got True"),
        ({"method": "quad-opt", "height": "3"}, "whole number, 0 or more, got '3'"),
        (
            {"method": "quad-opt", "height": 32},
            r"halved 31 times per axis, got height=32\. Choose a smaller height",
        ),
        ({"method": "quad-opt", "height": 10**9}, "halved at most 62 times"),
        (
            {"method": METHODS["kd-standard"], "sample": 0.1},
            "height, prune, sample, noise, budget and options need the name of a method",
        ),
        ({"method": METHODS["quad-geo"], "noise": "discrete-laplace"}, "need the name of a method"),
        ({"method": "privtree", "height": 3}, r"privtree has no option height\. Leave it out, or choose one of quad-"),
        ({"sample": 0.1}, r"best has no option sample\. Leave it out, or choose one of kd-standard, kd-hybrid"),
        ({"method": "kd-hybrid", "sample": 0}, "rate of a sample is a number above 0, up to 1, got 0"),
        ({"method": "kd-hybrid", "sample": 1.5}, "rate of a sample is a number above 0, up to 1"),
        ({"noise": "none"}, "noise of a release must be discrete-laplace or discrete-gaussian, got 'none'"),
        ({"noise": vm.Noise.NONE}, "noise of a release must be discrete-laplace or discrete-gaussian, got 'none'"),
        ({"noise": "gaussian"}, "got 'gaussian'"),
        ({"noise": "discrete-gaussian"}, r"The guarantee of best .* is \(epsilon, delta\)\. Give a delta"),
        ({"delta": 1e-6}, r"The guarantee of best is pure\. Leave delta out, or choose the noise discrete-gaussian"),
        ({"noise": "discrete-gaussian", "delta": 0}, "delta is a number between 0 and 0.1, .* got 0"),
        ({"noise": "discrete-gaussian", "delta": 1}, "delta is a number between 0 and 0.1, .* got 1"),
        ({"noise": "discrete-gaussian", "delta": "tiny"}, "delta is a number between 0 and 0.1, .* got 'tiny'"),
        ({"noise": "discrete-gaussian", "delta": "1e-99"}, "a delta of at least 2"),
        (
            {"method": vm.Method(structure=vm.KdTree(2, median="smooth-sensitivity"))},
            r"The guarantee of custom .* is \(epsilon, delta\)\. Give a delta",
        ),
        ({"unit": np.arange(500)}, "give unit= and max_rows_per_unit= together, or neither"),
        ({"max_rows_per_unit": 3}, "give unit= and max_rows_per_unit= together, or neither"),
        ({"unit": np.arange(500), "max_rows_per_unit": 0}, "from 1 to 1000000, got 0"),
        ({"unit": np.arange(500), "max_rows_per_unit": 2.0}, r"from 1 to 1000000, got 2\.0"),
        ({"method": "kd-pure"}, "kd-pure is a non-private baseline: .* or use allow_nonprivate=True"),
        ({"method": "kd-true"}, "kd-true is a non-private baseline"),
        ({"method": vm.Method(structure=vm.Quadtree(1), noise=vm.Noise.NONE)}, "custom is a non-private baseline"),
        ({"prune": float("nan")}, "pruning threshold must be a finite number, got nan"),
        ({"points": POINTS[:, :1]}, r"2 axes \(lon, lat\) must have one column per axis, got 1"),
        ({"points": np.ones((3, 5))}, r"must have one column per axis, got 5"),
        ({"points": POINTS[:, 0]}, "must have one column per axis, got 1 dimensions instead of 2"),
        ({"points": POINTS[None]}, "must have one column per axis, got 3 dimensions instead of 2"),
        ({"points": POINTS.astype(str)}, "Points must be numbers, got an array of type str"),
        ({"points": POINTS > 0}, "Points must be numbers, got an array of type bool"),
        ({"points": POINTS.astype(complex)}, "Points must be numbers, got an array of type complex128"),
        ({"points": np.zeros((3, 2), "datetime64[s]")}, "Points must be numbers, got an array of type datetime64"),
        (
            {"method": vm.Method(structure=vm.Quadtree(3), budget=vm.Levels([1, 1]))},
            "height 3 has 4 levels, but 2 shares were given",
        ),
    ],
)
def test_a_bad_argument_is_refused_with_a_sentence(changed, sentence):
    arguments = {"points": POINTS, "domain": PLANE, "epsilon": 1} | changed
    with pytest.raises(vm.BadInput, match=sentence):
        vm.release(**arguments)


@pytest.mark.parametrize(("axes", "height"), [(2, 25), (8, 7), (1, 30)])
def test_a_tree_too_large_for_memory_is_refused_with_its_size(axes, height, monkeypatch):
    monkeypatch.setattr("veilmap.method.resources.free_memory", lambda: 2**30)
    with pytest.raises(TooLarge, match=r"would need \S+ GiB of memory; 1 GiB are free\. Choose a smaller height"):
        vm.release(np.empty((0, axes)), space(axes), 1, "quad-opt", height)


def test_a_refused_release_never_opens_the_points():
    class Untouchable:
        def __getattr__(self, name):
            raise AssertionError(f"the points were asked for {name}")

    with pytest.raises(vm.BadInput, match="epsilon"):
        vm.release(Untouchable(), PLANE, -1)


class Odd:
    """A budget by someone who did not read the rules."""

    def __init__(self, *weights):
        self.given = weights

    def weights(self, height, ratio):
        return self.given


@pytest.mark.parametrize("weights", [(1, 0, 0, 0), (1, 1), (1, 1, 1, 1, 1), ()])
def test_a_budget_that_leaves_out_leaves_or_levels_is_refused_before_the_data_is_read(weights, monkeypatch):
    monkeypatch.setattr("veilmap.releases.make.seal", lambda *_: pytest.fail("the data was touched"))
    with pytest.raises(vm.BadInput, match="one share for each of its 4 levels, and its leaves more than 0"):
        vm.release(POINTS, PLANE, 1, vm.Method(structure=vm.Quadtree(3), budget=Odd(*weights)))


@pytest.mark.parametrize("epsilon", ["1e99999999", "1e-99999999", "1" * 500, "1/0"])
def test_an_absurd_epsilon_is_refused_at_once(epsilon):
    with pytest.raises(vm.BadInput, match="epsilon must be a number"):
        vm.release(POINTS, PLANE, epsilon)
    with pytest.raises(vm.BadInput, match="must be a list of numbers"):
        vm.Levels([epsilon])


def test_no_points_is_no_error():
    assert abs(vm.release([], PLANE, 50).count([*PLANE.lo, *PLANE.hi]).estimate[0]) < 3
