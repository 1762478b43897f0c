"""The noise has exactly the distribution it claims, on its fast path and on its slow ones.

Statistical tests are three-sided: the claimed scale is accepted, and scales 30 % smaller and larger are
rejected by the very same statistic. The thresholds lie so far apart that none of them ever flakes:
the truth gives p < 1e-9 once in a billion runs, and a near miss never gives p > 1e-20 with this many draws.
"""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from decimal import Decimal, Inexact, getcontext, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from veilmap.errors import BadInput
from veilmap.testing import fixed_entropy
from veilmap.vault import entropy
from veilmap.vault.entropy import FixedKeys, RandomBits, SystemKeys, current_keys
from veilmap.vault.mechanisms import laplace
from veilmap.vault.mechanisms.laplace import DRAWS_PER_KEY, discrete_laplace, exp_bounds, noise_variance

DRAWS = 200_000
ACCEPT, REJECT = 1e-9, 1e-20
EPSILONS = [Fraction(1, 10_000), Fraction(1, 100), Fraction(1, 7), Fraction(1, 2), Fraction(1), Fraction(3)]
SCALES = [pytest.param(1.0, True, id="own"), pytest.param(0.7, False, id="-30%"), pytest.param(1.3, False, id="+30%")]


def cdf(z: np.ndarray, epsilon: float) -> np.ndarray:
    """P[Z ≤ z] of the two-sided geometric distribution."""
    q = np.exp(-epsilon * np.where(z < 0, -z, z + 1)) / (1 + math.exp(-epsilon))
    return np.where(z < 0, q, 1 - q)


def bins(epsilon: float, n: int) -> np.ndarray:
    """Upper ends of bins of integers, each of which expects at least 5 of ``n`` draws; the last is open."""
    part = np.arange(1, 200) / 200
    quantiles = np.sign(part - 0.5) * -np.log(2 * np.minimum(part, 1 - part)) / epsilon
    ends = np.unique(np.concatenate([np.arange(-40, 41), quantiles]).round())
    kept, below = [], 0.0
    for end, mass in zip(ends, cdf(ends, epsilon), strict=True):
        if (mass - below) * n >= 5 and (1 - mass) * n >= 5:
            kept.append(end)
            below = mass
    return np.array(kept)


def chi_square(draws: np.ndarray, epsilon: Fraction) -> float:
    """The p-value of the draws under the claim that they are two-sided geometric of scale 1/ε."""
    ends = bins(float(epsilon), len(draws))
    seen = np.bincount(np.searchsorted(ends, draws), minlength=len(ends) + 1)
    expected = np.diff(cdf(ends, float(epsilon)), prepend=0.0, append=1.0) * len(draws)
    assert expected.min() >= 5 * (1 - 1e-9)
    return float(stats.chisquare(seen, expected * (seen.sum() / expected.sum())).pvalue)


def same_source(a: np.ndarray, b: np.ndarray, ends: np.ndarray) -> float:
    """The p-value of the claim that two samples come from one distribution."""
    table = np.stack([np.bincount(np.searchsorted(ends, x), minlength=len(ends) + 1) for x in (a, b)])
    return float(stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue)


def verdict(p: float, accept: bool) -> None:
    assert p > ACCEPT if accept else p < REJECT, p


# --- the distribution -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scale", "accept"), SCALES)
@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
def test_noise_has_its_own_scale_and_no_other(epsilon: Fraction, scale: float, accept: bool) -> None:
    draws = discrete_laplace(epsilon / Fraction(str(scale)), DRAWS, SystemKeys())
    verdict(chi_square(draws, epsilon), accept)


@pytest.mark.parametrize(("scale", "accept"), SCALES)
@pytest.mark.parametrize("epsilon", [Fraction(1, 20), Fraction(1, 2), Fraction(2)], ids=str)
def test_noise_agrees_with_opendp(epsilon: Fraction, scale: float, accept: bool) -> None:
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    theirs = np.array(dp.m.make_laplace(*space, scale=scale / float(epsilon))([0] * 50_000))
    ours = discrete_laplace(epsilon, DRAWS, SystemKeys())
    verdict(same_source(ours, theirs, bins(float(epsilon), len(theirs))), accept)


@pytest.mark.parametrize(("scale", "accept"), SCALES)
@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
def test_variance_is_the_one_that_is_published(epsilon: Fraction, scale: float, accept: bool) -> None:
    draws = discrete_laplace(epsilon / Fraction(str(scale)), DRAWS, SystemKeys()).astype(float)
    # Var(Z²) = E Z⁴ − Var², with E Z⁴ = 2q(1 + 10q + q²) / (1 − q)⁴
    q, v = math.exp(-epsilon), noise_variance(epsilon)
    spread = math.sqrt((2 * q * (1 + 10 * q + q * q) / (1 - q) ** 4 - v * v) / len(draws))
    off = abs(np.mean(draws**2) - v) / spread
    assert off < 6.5 if accept else off > 9.5, off  # p about 1e-10 and 1e-20


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
def test_variance_is_the_sum_over_the_distribution(epsilon: Fraction) -> None:
    e = float(epsilon)
    z = np.arange(1, int(60 / e) + 2)
    mass = np.exp(-e * z) * math.tanh(e / 2)  # (1 − q) / (1 + q) = tanh(ε / 2)
    assert noise_variance(epsilon) == pytest.approx(2 * float(np.sum(z.astype(float) ** 2 * mass)), rel=1e-9)


def dependence(values: np.ndarray, digits: int) -> float:
    """The smallest p-value of independence over pairs of binary digits."""
    bits = [(values >> j) & 1 for j in range(digits)]
    tables = (np.bincount(2 * bits[i] + bits[j], minlength=4) for i in range(digits) for j in range(i))
    return min(float(stats.chi2_contingency(t.reshape(2, 2)).pvalue) for t in tables)


def test_digits_of_the_magnitude_are_independent_and_biased_as_proved() -> None:
    epsilon = Fraction(1, 3)
    z = discrete_laplace(epsilon, DRAWS, SystemKeys())
    g = np.abs(z[z != 0]) - 1
    assert dependence(g, 4) > ACCEPT
    assert dependence(g + 1, 4) < REJECT  # the near miss: 1 + G is no geometric variable from 0
    for j in range(6):
        p = 1 / (1 + math.exp(epsilon * 2**j))
        assert stats.binomtest(int(((g >> j) & 1).sum()), len(g), p).pvalue > ACCEPT


def test_sign_is_fair_and_independent_of_the_magnitude() -> None:
    z = discrete_laplace(Fraction(1, 3), DRAWS, SystemKeys())
    positive, negative = z[z > 0], -z[z < 0]
    assert stats.binomtest(len(positive), len(positive) + len(negative)).pvalue > ACCEPT
    assert same_source(positive, negative, np.arange(1, 15)) > ACCEPT


# --- the certified expansions -----------------------------------------------------------------------------------


def exp_by_hand(x: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """An enclosure of e^x by a Taylor sum and squaring, in whole numbers: nothing in common with Decimal."""
    if x < 0:
        lo, hi = exp_by_hand(-x, bits + 4 + 4 * math.ceil(-x))
        return 1 / hi, 1 / lo
    halvings = max(0, math.ceil(x).bit_length()) + 1
    unit = 2 ** (bits + 3 * halvings + 20 + 3 * math.ceil(x))
    t, term, total, k = x / 2**halvings, Fraction(1), Fraction(0), 0
    while term * unit > 1:
        total += term
        k += 1
        term = Fraction(math.ceil(term * t / k * unit * 2**20), unit * 2**20)  # rounded up: bounds the rest
    slack = Fraction(2 * k + 4, unit)
    lo, hi = total - slack, total + slack
    for _ in range(halvings):
        lo, hi = Fraction(math.floor(lo * lo * unit), unit), Fraction(math.ceil(hi * hi * unit), unit)
    return lo, hi


exponents = st.fractions(min_value=Fraction(-60), max_value=Fraction(60), max_denominator=10**6).filter(bool)


@given(exponents, st.integers(20, 90))
def test_bounds_of_exp_enclose_it_and_are_narrow(x: Fraction, precision: int) -> None:
    lo, hi = exp_bounds(x, precision)
    sure_lo, sure_hi = exp_by_hand(x, 400)
    assert lo <= sure_lo <= sure_hi <= hi
    assert (hi - lo) / lo < Fraction(200, 10**precision) * (1 + abs(x))


@pytest.mark.parametrize("epsilon", [*EPSILONS, Fraction(1, 2**50), Fraction(355, 113), Fraction(1000)], ids=str)
def test_expansions_are_certain_to_the_last_bit(epsilon: Fraction) -> None:
    zero, *digits, tail = laplace._probabilities(epsilon)
    # at ε = 1000 the numbers are e^1000: only the short expansions are cheap to check by hand
    for bits in (16, 80, 144):
        e_lo, e_hi = exp_by_hand(epsilon, 700)
        assert {math.floor((e - 1) / (e + 1) * 2**bits) for e in (e_lo, e_hi)} == {zero.digits(bits)}
        for j, digit in enumerate(digits):
            ends = exp_by_hand(epsilon * 2**j, 700)
            assert {math.floor(1 / (1 + e) * 2**bits) for e in ends} == {digit.digits(bits)}
        ends = exp_by_hand(-epsilon * 2 ** len(digits), 700)
        assert {math.floor(e * 2**bits) for e in ends} == {tail.digits(bits)}


@pytest.mark.parametrize("precision", [3, 8, 30])
@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
def test_enclosures_enclose_at_any_precision(epsilon: Fraction, precision: int) -> None:
    """Also where they are wide: a digit is believed only when both ends agree on it."""
    for enclose, p in [
        (laplace._zero, lambda e: (e - 1) / (e + 1)),
        (lambda x, n: laplace._digit(x, 3, n), lambda e: 1 / (1 + e**8)),
        (lambda x, n: laplace._tail(x, 3, n), lambda e: 1 / e**8),
    ]:
        lo, hi = enclose(epsilon, precision)
        sure = sorted(p(e) for e in exp_by_hand(epsilon, 400))
        assert lo < sure[0] <= sure[1] < hi


def test_expansions_do_not_change_with_the_callers_decimal_context() -> None:
    epsilon = Fraction(5, 17)
    want = [p.digits(80) for p in laplace._probabilities.__wrapped__(epsilon)]
    with localcontext() as context:
        context.prec, context.rounding, context.traps[Inexact] = 3, "ROUND_UP", True
        assert [p.digits(80) for p in laplace._probabilities.__wrapped__(epsilon)] == want
        assert getcontext().prec == 3


def test_decimal_exp_rounds_correctly_whatever_the_context_says() -> None:
    # What exp_bounds leans on: the nearest number, not one rounded by the context's direction.
    for rounding in ("ROUND_FLOOR", "ROUND_CEILING", "ROUND_HALF_EVEN"):
        for x in (Decimal("0.1"), Decimal("-3.7"), Decimal("41.25")):
            with localcontext(prec=60, rounding=rounding):
                short = x.exp()
            with localcontext(prec=120):
                last_place = Decimal((0, (1,), short.as_tuple().exponent))
                assert abs(short - x.exp()) * 2 <= last_place


def test_digits_asks_for_more_precision_until_both_ends_agree() -> None:
    asked = []

    def enclose(precision: int) -> tuple[Fraction, Fraction]:
        asked.append(precision)
        p, width = Fraction(1, 2) + Fraction(1, 10**60), Fraction(1, 10**precision)  # just above a dyadic
        return p - width, p + width

    assert laplace.Probability(enclose).digits(16) == 2**15
    assert len(asked) > 1
    assert asked[-1] > 60


# --- the slow paths ---------------------------------------------------------------------------------------------


class ScriptedBits:
    """Random bits that are not: 64-bit words from a list."""

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def words(self, shape: int, kind: str) -> np.ndarray:
        assert (shape, kind) == (1, "<u8")
        return np.array([self.left.pop(0)], np.uint64)


@given(st.sampled_from(EPSILONS), st.integers(-3, 3), st.integers(0, 2), st.integers(0, 2**64 - 1))
def test_lazy_comparison_is_the_whole_comparison(epsilon: Fraction, off: int, agree: int, noise_word: int) -> None:
    """U < p, decided from the first word in which they differ, for U that agrees with p for a while."""
    for p in laplace._probabilities(epsilon)[:3]:
        length = 16 + 64 * (agree + 1)
        u = p.digits(length) + off
        if u >> (64 * (agree + 1)) != p.digits(16):
            continue  # it differs in the first 16 bits already
        words = [(u >> (64 * k)) & (2**64 - 1) for k in range(agree, -1, -1)] + [noise_word]
        script = ScriptedBits(*words)
        exact = p.digits(length + 64)  # U = 0.u…noise_word, to as many bits
        assert laplace._refine(p, script, 16) is ((u << 64) + noise_word < exact)
        assert off == 0 or script.left  # asked for no more bits than it took


def test_undecided_comparisons_have_the_remaining_probability() -> None:
    """All comparisons open after 16 bits: each is then decided with the rest of its expansion."""
    epsilon, n = Fraction(1, 5), 20_000
    probabilities = laplace._probabilities(epsilon)
    first = np.array([p.digits(16) for p in probabilities], np.uint16)
    bits = RandomBits(SystemKeys().fresh())
    undecided = first.copy()
    undecided[-1] = 65535  # but no digit beyond: its first 16 bits are zeros, like those of any tiny number
    z = np.array([laplace._draw_slowly(probabilities, undecided, np.uint8(i & 1), first, bits) for i in range(n)])
    rest = [(p.digits(80) & (2**64 - 1)) / 2**64 for p in probabilities]
    assert stats.binomtest(int((z == 0).sum()), n, rest[0]).pvalue > ACCEPT
    g = np.abs(z[z != 0]) - 1
    for j, p in enumerate(rest[1:-1]):
        assert stats.binomtest(int(((g >> j) & 1).sum()), len(g), p).pvalue > ACCEPT
    assert abs(rest[1] - 0.45) > 1e-3  # it is not the probability of the whole comparison that was seen


class FewBits(RandomBits):
    """Whole 64-bit words, but first words of a single bit: about half of all comparisons stay open."""

    def words(self, shape: int | tuple[int, ...], kind: str) -> np.ndarray:
        words = super().words(shape, kind)
        return words & 1 if kind == "<u2" else words


@pytest.mark.parametrize(("scale", "accept"), SCALES)
def test_slow_path_has_the_same_distribution(monkeypatch: pytest.MonkeyPatch, scale: float, accept: bool) -> None:
    epsilon = Fraction(3, 10)
    monkeypatch.setattr(laplace, "FIRST_BITS", 1)
    monkeypatch.setattr(laplace, "RandomBits", FewBits)
    slow = []
    draw_slowly = laplace._draw_slowly
    monkeypatch.setattr(laplace, "_draw_slowly", lambda *a: slow.append(1) or draw_slowly(*a))
    draws = laplace._draw(
        laplace._probabilities.__wrapped__(epsilon / Fraction(str(scale))), 20_000, SystemKeys().fresh()
    )
    assert len(slow) > 15_000
    verdict(chi_square(draws, epsilon), accept)


@pytest.mark.parametrize(("scale", "accept"), SCALES)
def test_tail_beyond_the_last_digit_has_the_same_distribution(
    monkeypatch: pytest.MonkeyPatch, scale: float, accept: bool
) -> None:
    epsilon = Fraction(3, 10)
    monkeypatch.setattr(laplace, "TAIL_EXPONENT", Fraction(1, 2))  # a single digit: most draws go beyond it
    probabilities = laplace._probabilities.__wrapped__(epsilon / Fraction(str(scale)))
    assert len(probabilities) <= 4
    draws = laplace._draw(probabilities, 40_000, SystemKeys().fresh())
    assert np.abs(draws).max() > 16
    verdict(chi_square(draws, epsilon), accept)


@pytest.mark.parametrize(("scale", "accept"), SCALES)
def test_slow_and_tail_together_have_the_same_distribution(
    monkeypatch: pytest.MonkeyPatch, scale: float, accept: bool
) -> None:
    epsilon = Fraction(1)
    monkeypatch.setattr(laplace, "TAIL_EXPONENT", 1)
    monkeypatch.setattr(laplace, "FIRST_BITS", 1)
    monkeypatch.setattr(laplace, "RandomBits", FewBits)
    draws = laplace._draw(
        laplace._probabilities.__wrapped__(epsilon / Fraction(str(scale))), 40_000, SystemKeys().fresh()
    )
    verdict(chi_square(draws, epsilon), accept)


# --- epsilons and sizes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "epsilon", [Fraction(0), Fraction(-1), Fraction(1, 2**51), Fraction(1001), float("nan")], ids=str
)
def test_epsilon_out_of_range_is_refused(epsilon: Fraction) -> None:
    with pytest.raises(BadInput, match=r"2\^-50 to 1000"):
        discrete_laplace(epsilon, 1, SystemKeys())


@pytest.mark.parametrize(("epsilon", "scale"), [(Fraction(1, 2**50), 2.0**50), (Fraction(1000), 0.0)], ids=str)
def test_extreme_epsilons_are_drawn(epsilon: Fraction, scale: float) -> None:
    draws = np.abs(discrete_laplace(epsilon, 10_000, SystemKeys()))
    # the mean of |Z| is about 1/ε; its relative spread over 10,000 draws is 1 %
    assert draws.mean() == pytest.approx(scale, rel=0.07)
    assert draws.max() <= 60 * scale


@pytest.mark.parametrize("n", [0, 1, 2, 100, DRAWS_PER_KEY, DRAWS_PER_KEY + 1, 2 * DRAWS_PER_KEY])
def test_any_number_of_draws_can_be_had(n: int) -> None:
    draws = discrete_laplace(Fraction(1, 1000), n, SystemKeys())
    assert draws.shape == (n,)
    assert draws.dtype == np.int64
    if n >= 100:
        assert len(np.unique(draws[:100])) > 50


# --- where the bits come from -----------------------------------------------------------------------------------


class RecordedKeys:
    private = True

    def __init__(self) -> None:
        self.keys: list[bytes] = []

    def fresh(self) -> bytes:
        self.keys.append(SystemKeys().fresh())
        return self.keys[-1]


def test_every_block_takes_a_fresh_key(monkeypatch: pytest.MonkeyPatch) -> None:
    used = []

    class Spy(RandomBits):
        def __init__(self, key: bytes) -> None:
            used.append(key)
            super().__init__(key)

    monkeypatch.setattr(laplace, "RandomBits", Spy)
    keys = RecordedKeys()
    draws = discrete_laplace(Fraction(1, 1000), 3 * DRAWS_PER_KEY + 5, keys)
    discrete_laplace(Fraction(1, 1000), 5, keys)
    assert sorted(used) == sorted(keys.keys)
    assert len(set(used)) == len(used) == 5
    blocks = draws[: 3 * DRAWS_PER_KEY].reshape(3, DRAWS_PER_KEY)
    assert all(np.mean(blocks[i] == blocks[j]) < 0.01 for i in range(3) for j in range(i))


def test_bits_are_the_chacha20_keystream_of_the_key() -> None:
    # RFC 8439, appendix A.1, test vector 1: the zero key, the zero nonce, from block 0
    stream = bytes.fromhex("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")
    bits = RandomBits(bytes(32))
    assert bits.words(8, "<u1").tobytes() == stream[:8]
    assert bits.words((2, 4), "<u2").tobytes() == stream[8:24]
    assert int(bits.words(1, "<u8")[0]) == int.from_bytes(stream[24:32], "little")


def test_keys_are_asked_of_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    urandom = entropy.os.urandom
    monkeypatch.setattr(entropy.os, "urandom", lambda n: asked.append(n) or urandom(n))
    assert isinstance(current_keys(), SystemKeys)
    discrete_laplace(Fraction(1), 2 * DRAWS_PER_KEY + 1, current_keys())
    assert asked == [32, 32, 32]


def test_system_keys_have_no_state() -> None:
    assert vars(SystemKeys()) == {}
    assert len({SystemKeys().fresh() for _ in range(1000)}) == 1000


def test_threads_draw_different_noise() -> None:
    found: list[bytes] = []
    epsilon = Fraction(1, 10**5)

    def work() -> None:
        found.append(discrete_laplace(epsilon, 50, current_keys()).tobytes())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 8


FORKED = """
import os
from fractions import Fraction
from veilmap.vault.mechanisms.laplace import discrete_laplace
from veilmap.vault.entropy import current_keys
draw = lambda: discrete_laplace(Fraction(1, 10**5), 50, current_keys()).tobytes().hex()
print(draw())
ends = [os.pipe() for _ in range(3)]
for _, write in ends:
    if os.fork() == 0:
        os.write(write, draw().encode())
        os._exit(0)
print(draw())
for read, write in ends:
    os.close(write)
    print(os.fdopen(read).read())
"""

POOLED = """
import multiprocessing, sys
from fractions import Fraction
from veilmap.vault.mechanisms.laplace import discrete_laplace
from veilmap.vault.entropy import SystemKeys
if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        for draws in pool.starmap(discrete_laplace, [(Fraction(1, 10**5), 50, SystemKeys())] * 4, chunksize=2):
            print(draws.tobytes().hex())
"""


@pytest.mark.skipif(not hasattr(entropy.os, "fork"), reason="this system has no fork")
def test_children_of_fork_draw_different_noise(tmp_path) -> None:
    lines = run(tmp_path, FORKED)
    assert len(set(lines)) == len(lines) == 5


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_processes_draw_different_noise(tmp_path, start: str) -> None:
    if start == "fork" and not hasattr(entropy.os, "fork"):
        pytest.skip("this system has no fork")
    lines = run(tmp_path, POOLED, start)
    assert len(set(lines)) == len(lines) == 4


def run(folder, text: str, *arguments: str) -> list[str]:
    script = folder / "script.py"
    script.write_text(text)
    done = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, timeout=120, check=True)
    assert all(len(line) == 800 for line in done.stdout.split())
    return done.stdout.split()


# --- fixed entropy ----------------------------------------------------------------------------------------------


def some(n: int = 300) -> bytes:
    return discrete_laplace(Fraction(1, 10**5), n, current_keys()).tobytes()


def test_fixed_entropy_repeats_and_says_so() -> None:
    with fixed_entropy(7):
        assert not current_keys().private
        first, second = some(), some()
    with fixed_entropy(7):
        assert (some(), some()) == (first, second)
    with fixed_entropy(8):
        assert some() != first
    assert first != second
    assert current_keys().private
    assert some() not in (first, second)


def test_fixed_entropy_repeats_requests_of_many_blocks() -> None:
    with fixed_entropy(7):
        first = some(2 * DRAWS_PER_KEY + 3)
    with fixed_entropy(7):
        assert some(2 * DRAWS_PER_KEY + 3) == first


def test_fixed_entropy_ends_with_its_block_even_on_an_error() -> None:
    with pytest.raises(KeyError), fixed_entropy(1):
        raise KeyError
    assert current_keys().private
    with fixed_entropy(1):
        with fixed_entropy(2):
            inner = some()
        assert some() != inner
        assert not current_keys().private


def test_fixed_entropy_stays_in_its_thread() -> None:
    seen = []
    with fixed_entropy(1):
        thread = threading.Thread(target=lambda: seen.append(current_keys().private))
        thread.start()
        thread.join()
    assert seen == [True]


def test_fixed_keys_never_repeat_within_one_seed() -> None:
    keys = FixedKeys(3)
    assert len({keys.fresh() for _ in range(1000)}) == 1000
