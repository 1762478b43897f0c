"""The experimental study of the paper (section 8), on this implementation and on the rivals."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from veilmap.domain import Domain
from veilmap.reproduce.study import Experiment, Setting

EXPERIMENTS = {
    "fig2": ("budgets",),
    "fig3": ("quadtrees",),
    "fig4": ("medians",),
    "fig5": ("kdtrees",),
    "fig6": ("heights",),
    "fig7": ("times", "records"),
    "rivals": ("rivals",),
}
"""Which modules make each figure: every one has ``experiment(setting)``."""

QUICK = 100_000


def prepare(
    names: list[str], data: Path | None, domain: str | None, people: Path | None, seed: int, quick: bool
) -> tuple[Setting, list[Experiment]]:
    """The points, and the experiments on them."""
    from veilmap.reproduce.census import read_adult
    from veilmap.reproduce.data import GENERATED, PAPER_BOX, read_points, two_states
    from veilmap.reproduce.records import experiment as matching

    box = None if domain is None else Domain.parse(domain)
    if data is None:
        points, box, source = two_states(QUICK if quick else 1_630_000, seed), box or PAPER_BOX, GENERATED
    else:
        points, box, source = read_points(data, box)
    setting = Setting(points, box, source, seed, quick)
    found = []
    for module in (module for name in names for module in EXPERIMENTS[name]):
        if module == "records" and people is not None:
            found.append(matching(setting, read_adult(people), people.name))
        else:
            found.append(import_module(f"veilmap.reproduce.{module}").experiment(setting))
    return setting, found
