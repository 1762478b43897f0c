"""How a release shows itself in a notebook."""

from __future__ import annotations

import base64
from html import escape

from veilmap.errors import VeilmapError
from veilmap.releases.release import Release

MOST_NODES, MOST_NODES_OF_PAIRS = 2_000_000, 50_000
"""That are drawn unasked: what takes longer than a second or two is for ``plot``."""
BANNER = "background:#b3261e;color:#fff;padding:.3em .6em;border-radius:.3em;font-weight:bold"


def html_of(release: Release) -> str:
    """A table of what is promised, and a small picture where matplotlib is there."""
    privacy, domain, tree = release.privacy, release.domain, release.estimates.tree
    total = release.count([*domain.lo, *domain.hi])
    delta = f", δ = {float(privacy.delta):g}" if privacy.delta else ""
    facts = {
        "Budget": f"ε = {float(privacy.epsilon):g}{delta}",
        "Protects": privacy.unit,
        "Method": f"{release.method['name']}, {release.height} levels, {tree.size:,} nodes",
        "Domain": str(domain) + (f" ({domain.crs})" if domain.crs else ""),
        "Rows": f"{total.estimate[0]:,.0f}, 95 % within {total.low[0]:,.0f} to {total.high[0]:,.0f}",
        "Made": f"{release.provenance['created']} by {release.provenance['software']}",
    }
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(fact)}</td></tr>"
        for name, fact in facts.items()
    )
    mark = "" if privacy.private else f"<p><span style='{BANNER}'>NOT PRIVATE</span></p>"
    return f"<div>{mark}<table>{rows}</table><p>{escape(privacy.statement())}</p>{_image(release)}</div>"


def _image(release: Release) -> str:
    from veilmap import plot

    many = MOST_NODES if release.domain.dimensions <= 2 else MOST_NODES_OF_PAIRS
    if release.estimates.tree.size > many:
        return ""
    try:
        picture = plot.rendered(release, "png", dpi=90)
    except VeilmapError:  # there is no matplotlib
        return ""
    return f"<img alt='How dense the release is' src='data:image/png;base64,{base64.b64encode(picture).decode()}'>"
