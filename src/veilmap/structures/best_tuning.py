"""The constants of ``best``: what each of them is, and in which unit.

A *load* is a number of rows times ε: what can be seen through noise depends on this product. A *unit* is a hundredth of
the budget. ``docs/model.md`` has the formulas in which these numbers stand, and ``python -m benchmarks.ablation``
measures what each of them is worth.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

PRICE_UNITS = 100
"""Units in the budget: every node pays a whole number of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestTuning:
    """How ``best`` spends its budget and chooses the size of leaves."""

    # Spending
    total_units: int = 1
    """Units that the count of all rows costs."""
    recount_units: int = 4
    """Units for a second count of all rows, where the first says little."""
    recount_below_load: float = 400.0
    """Load below which all rows are counted a second time."""
    reserved_units_few: int = 3
    """Units that probe and check cost together, at loads from ``min_probe_load``."""
    reserved_units_many: int = 2
    """The same from ``many_rows_load``."""
    reserved_units_most: int = 1
    """The same from ``most_rows_load``."""
    probe_share_few: Fraction = Fraction(2, 3)
    """Fraction of the reserved units that the probe takes, below ``many_rows_load``."""
    probe_share_many: Fraction = Fraction(2, 5)
    """The same from ``many_rows_load``."""
    min_probe_load: float = 500.0
    """Load from which there are a probe and a check."""
    many_rows_load: float = 6000.0
    """Load from which the probe is fine and the first split is planned."""
    most_rows_load: float = 60_000.0
    """Load from which probe and check cost least."""

    # Splits
    load_per_leaf: float = 4.0
    """Load of a leaf when nothing else is known."""
    load_per_leaf_first_split: float = 8.0
    """The same for the first split, which comes before the probe and must not be too fine."""
    children_per_split: float = 36.0
    """Children of a node, about."""
    level_rounding: float = 0.4
    """Added to the number of planned levels before it is rounded."""
    first_split_units_few: int = 16
    """Units that the first split costs below ``many_rows_load``, on two axes and more."""
    max_planned_levels: int = 8
    level_weight: float = 1.45
    """Weight of a level over that of the level above, beside the growth of the border: small queries use lower levels."""
    level_weight_one_axis: float = 1.1
    """The same on one axis."""
    min_children: float = 1.6
    """Leaves that a box must deserve to be split at all."""
    max_parts_per_axis: int = 512
    max_leaves: int = 2**22
    """About."""

    # The probe
    max_probe_cells: int = 2**19
    expected_roughness: float = 0.25
    """Relative difference of half-cells before anything is known."""
    expected_roughness_sd: float = 0.12
    """Its standard deviation from one data set to the next."""
    noise_weight_few: float = 0.8
    """Fraction of a leaf's noise variance in an answer that cuts it, below ``many_rows_load`` on one or two axes."""
    noise_weight_many: float = 0.35
    """The same elsewhere."""

    # Leaf sizes by the dissimilarity of siblings
    expected_dissimilarity: float = 0.06
    """Squared relative difference of adjacent siblings before anything is known."""
    expected_dissimilarity_pairs: float = 20.0
    """Pairs of siblings that this expectation is worth."""
    dissimilarity_exponent: float = 0.6
    """Leaves are larger by this power of the dissimilarity that is missing."""
    max_dissimilarity_factor: float = 2.5
    """By which leaves are larger or smaller at most."""


TUNING = BestTuning()
