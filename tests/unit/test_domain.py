"""The public box and its grid of cells."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import naive
from veilmap import BadInput, Domain
from veilmap.domain import KEY_BITS, MAX_BITS
from veilmap.kernels.counting import add_axis

NAMES = st.text("abcxyzäß_ 0129", min_size=1, max_size=6).map(str.strip).filter(bool)
ENDS = st.floats(-1e12, 1e12)


@st.composite
def ranges(draw):
    lo, hi = sorted((draw(ENDS), draw(ENDS)))
    return (lo, hi) if hi - lo > 1e-3 * max(1, abs(lo), abs(hi)) else (lo, lo + max(1, abs(lo)))


DOMAINS = st.builds(Domain, st.dictionaries(NAMES, ranges(), min_size=1, max_size=8))


def cells_of(domain, values, axis=0):
    """The cells of coordinates by the kernel that counts, -1 for those that are dropped."""
    index = np.zeros(len(values), np.int32)
    lo, hi = domain.axes[axis].lo, domain.axes[axis].hi
    add_axis(np.array(values, float), lo, hi, domain.scale(axis), domain.bits, domain.side, index)
    return index


@given(DOMAINS)
def test_json_text_and_pickle_give_the_same_domain_again(domain):
    assert Domain.from_json(domain.to_json()) == domain
    assert Domain.parse(str(domain)) == domain
    assert pickle.loads(pickle.dumps(domain)) == domain
    assert hash(Domain.from_json(domain.to_json())) == hash(domain)


def test_json_keeps_the_crs_and_the_bits():
    domain = Domain({"x": (0, 1)}, crs="EPSG:4326", bits=5)
    assert Domain.from_json(domain.to_json()) == domain
    assert domain.to_json() == {"axes": [{"name": "x", "lo": 0.0, "hi": 1.0}], "crs": "EPSG:4326", "bits": 5}


def test_axes_keep_their_order():
    domain = Domain({"lon": (-124.82, -103), "lat": (31.33, 49)})
    assert domain.names == ("lon", "lat")
    assert domain.dimensions == 2
    assert domain.lo.tolist() == [-124.82, 31.33]
    assert domain.hi.tolist() == [-103, 49]


@pytest.mark.parametrize("axes", range(1, 9))
def test_cells_of_all_axes_fit_one_key(axes):
    domain = Domain({f"x{a}": (0, 1) for a in range(axes)})
    assert domain.bits == min(MAX_BITS, KEY_BITS // axes)
    assert domain.side == 2**domain.bits


@given(DOMAINS)
def test_edges_rise_strictly_from_the_low_end_to_the_high_end(domain):
    some = np.unique(np.linspace(0, domain.side - 2, 50).astype(np.int64))
    for a, axis in enumerate(domain.axes):
        assert np.all(domain.edges(some, a) < domain.edges(some + 1, a))
        assert domain.edges(np.array([0, domain.side]), a).tolist() == [axis.lo, axis.hi]


def test_a_narrow_range_far_from_zero_has_fewer_bits():
    domain = Domain({"x": (1e9, 1e9 + 1e-4), "y": (0, 1)})
    assert 1 <= domain.bits < MAX_BITS
    assert np.all(np.diff(domain.edges(np.arange(domain.side + 1), 0)) > 0)


@given(ranges(), st.integers(1, 20), st.lists(st.floats(0, 1), min_size=1))
def test_a_point_lies_between_the_edges_of_its_cell(bounds, bits, parts):
    domain = Domain({"x": bounds}, bits=bits)
    lo, hi = bounds
    values = np.clip(lo + (hi - lo) * np.array(parts), lo, hi)
    cells = cells_of(domain, values)
    assert cells.tolist() == [naive.cell(x, lo, hi, domain.side) for x in values]
    rounding = 4 * np.spacing(max(abs(lo), abs(hi)))
    assert np.all(domain.edges(cells, 0) <= values + rounding)
    assert np.all(values - rounding <= domain.edges(cells + 1, 0))


def test_a_point_on_an_edge_belongs_to_the_cell_above_it_and_the_high_end_to_the_last():
    domain = Domain({"x": (-4, 4)}, bits=3)
    assert cells_of(domain, domain.edges(np.arange(9), 0)).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 7]


def test_points_outside_or_not_a_number_are_dropped():
    domain = Domain({"x": (-4, 4)}, bits=3)
    outside = [-math.inf, math.nextafter(-4, -5), math.nextafter(4, 5), math.inf, math.nan]
    assert cells_of(domain, outside).tolist() == [-1] * 5


@pytest.mark.parametrize(
    ("axes", "sentence"),
    [
        ([("x", (0, 1))], "maps axis names to ranges, like .* got list"),
        ({}, "1 to 8 axes, got 0"),
        ({f"x{a}": (0, 1) for a in range(9)}, "1 to 8 axes, got 9. Leave some out"),
        ({"": (0, 1)}, "needs a name of one or more printable characters, got ''"),
        ({3: (0, 1)}, "needs a name of one or more printable characters, got 3"),
        ({"x": (0, 0)}, r"'x' must run from low to high, got \(0.0, 0.0\)"),
        ({"x": (1, -1)}, r"'x' must run from low to high, got \(1.0, -1.0\)"),
        ({"x": (0, math.inf)}, r"'x' must be finite, got \(0.0, inf\)"),
        ({"x": (-math.inf, 0)}, "'x' must be finite"),
        ({"x": (math.nan, 1)}, r"'x' must be finite, got \(nan, 1.0\)"),
        ({"x": (-1.7e308, 1.7e308)}, "'x' must be finite"),
        ({"x": (1, 1 + 1e-15)}, "'x' is too narrow for 64-bit numbers, got .*Choose another unit or origin"),
        ({"x": (0, 1e-305)}, "'x' is too narrow"),
        ({"x": (0, 1, 2)}, r"'x' needs two numbers \(low, high\), got \(0, 1, 2\)"),
        ({"x": ("a", "b")}, "'x' needs two numbers"),
        ({"x": None}, "'x' needs two numbers"),
        ({"x": 5}, "'x' needs two numbers"),
        ({"x": "12"}, "'x' needs two numbers"),
    ],
)
def test_a_bad_box_is_refused_with_a_sentence(axes, sentence):
    with pytest.raises(BadInput, match=sentence):
        Domain(axes)


@pytest.mark.parametrize("bits", [0, -1, 32, 2.0, "8", True])
def test_bad_bits_are_refused_with_a_sentence(bits):
    with pytest.raises(BadInput, match="takes 1 to 31 bits per axis, got"):
        Domain({"x": (0, 1)}, bits=bits)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "'' is not name=low:high"),
        ("x", "'x' is not name=low:high"),
        ("x=1", "'x=1' is not name=low:high"),
        ("=0:1", "'=0:1' is not name=low:high"),
        ("x=0:1,", "'' is not name=low:high"),
        ("x=0:one", "'x' needs two numbers, got '0:one'"),
        ("x=0:1:2", "'x' needs two numbers, got '0:1:2'"),
        ("x=0:1,x=0:2", "names the axis 'x' twice"),
        ("x=1:0", "must run from low to high"),
        ("x=nan:1", "must be finite"),
    ],
)
def test_a_bad_text_is_refused_with_a_sentence(text, sentence):
    with pytest.raises(BadInput, match=sentence):
        Domain.parse(text)


def test_text_may_have_spaces_and_take_a_crs():
    domain = Domain.parse(" lon = -124.82:-103.00, lat=31.33:49", crs="OGC:CRS84")
    assert domain == Domain({"lon": (-124.82, -103), "lat": (31.33, 49)}, crs="OGC:CRS84")
