"""The constants of ``best``: what each of them is, and in which unit.

A *load* is a number of rows times ε: what can be seen through noise depends on this product. A *price unit* is
a hundredth of the budget. ``docs/model.md`` has the formulas in which these numbers stand, and
``python -m benchmarks.ablation`` measures what each of them is worth.
"""

from __future__ import annotations

from dataclasses import dataclass

PRICE_UNITS = 100
"""Price units in the budget: every node pays a whole number of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestTuning:
    """How ``best`` spends its budget and chooses the size of leaves."""

    # Spending
    total_units: int = 1
    """Price units that the count of all rows costs."""
    reserved_units: int = 2
    """Price units that probe and check cost together, one half each, at loads from ``min_probe_load``."""
    reserved_units_most: int = 1
    """The same from ``most_rows_load``, where less is enough."""
    min_probe_load: float = 500.0
    """Load from which there are a probe and a check."""
    many_rows_load: float = 6000.0
    """Load from which the probe is fine and the first split is planned."""
    most_rows_load: float = 60_000.0

    # Splits
    load_per_leaf: float = 4.0
    """Load of a leaf when nothing else is known."""
    load_per_leaf_first_split: float = 8.0
    """The same for the first split of many rows, which comes before the probe and must not be too fine."""
    children_per_split: float = 36.0
    """Children of a node, about."""
    level_rounding: float = 0.4
    """Added to the number of planned levels before it is rounded to the nearest whole number."""
    first_split_units_few: int = 16
    """Price units that the first split costs below ``many_rows_load``, on two axes and more."""
    max_planned_levels: int = 8
    level_weight: float = 1.45
    """Weight of a level over that of the level above, beside the growth of the border: for small queries."""
    level_weight_one_axis: float = 1.1
    """The same on one axis."""
    max_parts_per_axis: int = 512
    max_leaves: int = 2**22
    """About."""

    # The probe
    max_probe_cells: int = 2**19
    noise_weight: float = 0.35
    """Fraction of a leaf's noise variance in an answer that cuts it."""

    # Leaf sizes by the dissimilarity of siblings
    expected_dissimilarity: float = 0.06
    """Squared relative difference of adjacent siblings before anything is known."""
    expected_dissimilarity_pairs: float = 20.0
    """Pairs of siblings that this expectation is worth."""
    dissimilarity_exponent: float = 0.6
    """Leaves are larger by this power of the dissimilarity that is missing."""


TUNING = BestTuning()
