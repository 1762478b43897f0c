"""The display of a release in a notebook."""

from __future__ import annotations

import base64
from html import escape

from veilmap.errors import VeilmapError
from veilmap.releases.release import Release

MAX_DRAWN_NODES = 2_000_000
"""Of releases with one or two axes: a larger picture would take more than a second or two. ``plot`` draws any."""
MAX_DRAWN_NODES_OF_PAIRS = 50_000
"""The same for three or more axes."""
BANNER_STYLE = "background:#b3261e;color:#fff;padding:.3em .6em;border-radius:.3em;font-weight:bold"


def html_of(release: Release) -> str:
    """Return the release's properties and privacy statement as HTML, with a picture if matplotlib is installed."""
    privacy, domain, tree = release.privacy, release.domain, release.estimates.tree
    total = release.count([*domain.lo, *domain.hi])
    delta = f", δ = {float(privacy.delta):g}" if privacy.delta else ""
    facts = {
        "Budget": f"ε = {float(privacy.epsilon):g}{delta}",
        "Protects": privacy.unit,
        "Method": f"{release.method['name']}, {release.height} levels, {tree.size:,} nodes",
        "Domain": str(domain) + (f" ({domain.crs})" if domain.crs else ""),
        "Rows": f"{total.estimate[0]:,.0f} (95 % interval: {total.low[0]:,.0f} to {total.high[0]:,.0f})",
        "Created": f"{release.provenance['created']} by {release.provenance['software']}",
    }
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(fact)}</td></tr>"
        for name, fact in facts.items()
    )
    warning = "" if privacy.private else f"<p><span style='{BANNER_STYLE}'>NOT PRIVATE</span></p>"
    return f"<div>{warning}<table>{rows}</table><p>{escape(privacy.statement())}</p>{_image(release)}</div>"


def _image(release: Release) -> str:
    from veilmap import plot

    limit = MAX_DRAWN_NODES if release.domain.dimensions <= 2 else MAX_DRAWN_NODES_OF_PAIRS
    if release.estimates.tree.size > limit:
        return ""
    try:
        picture = plot.rendered(release, "png", dpi=90)
    except VeilmapError:  # matplotlib is not installed
        return ""
    return f"<img alt='Density of the release' src='data:image/png;base64,{base64.b64encode(picture).decode()}'>"
