"""The experimental study of the paper (section 8), run on this implementation and on competing methods."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from veilmap.domain import Domain
from veilmap.errors import BadInput
from veilmap.reproduce.study import QUICK_POINTS, Experiment, Setting

EXPERIMENTS = {
    "fig2": ("budgets",),
    "fig3": ("quadtrees",),
    "fig4": ("medians",),
    "fig5": ("kdtrees",),
    "fig6": ("heights",),
    "fig7": ("build_times", "record_matching"),
    "rivals": ("rivals",),
}
"""The modules that make each figure. Each module has a function ``experiment(setting)``."""


def prepare(
    data: Path | None, domain: str | None, people: Path | None, seed: int, quick: bool
) -> tuple[Setting, dict[str, list[Experiment]]]:
    """Return the study's setting, and all experiments by their names on the command line."""
    from veilmap.reproduce.census import read_adult
    from veilmap.reproduce.data import GENERATED_SOURCE, PAPER_BOX, read_points, two_states

    box = None if domain is None else Domain.parse(domain)
    if box is not None and box.dimensions != 2:
        raise BadInput(f"The study needs a domain with two axes, got {box.dimensions}.")
    if data is None:
        points, box, source = two_states(QUICK_POINTS if quick else 1_630_000, seed), box or PAPER_BOX, GENERATED_SOURCE
    else:
        points, box, source = read_points(data, box)
    setting = Setting(points, box, source, seed, quick, None if people is None else read_adult(people))
    experiments = {
        name: [import_module(f"veilmap.reproduce.{module}").experiment(setting) for module in modules]
        for name, modules in EXPERIMENTS.items()
    }
    return setting, experiments
