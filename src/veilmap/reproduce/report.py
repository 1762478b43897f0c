"""Tables, pictures and verdicts on one page, as Markdown and as HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

from veilmap.fileformat import put_in_place
from veilmap.reproduce.data import describe, draw_points
from veilmap.reproduce.study import Claim, Experiment, Row, Setting, Table

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #8886; text-align: right; }
th:first-child, td:first-child { text-align: left; }
img { max-width: 100%; background: white; }
"""


def write_report(experiments: Sequence[Experiment], rows: dict[str, list[Row]], setting: Setting, folder: Path) -> None:
    """``report.md`` and ``index.html`` say the same."""
    intro = (
        f"Data: {setting.source}. Seed {setting.seed}, {setting.repeats} repetitions"
        f"{', quick: smaller sets and fewer repetitions than the study proper' if setting.quick else ''}. "
        "Random numbers are fixed so that the tables can be made again: these releases are not private."
    )
    markdown = ["# The study", intro]
    page = ["<h1>The study</h1>", f"<p>{html.escape(intro)}</p>"]
    if setting.domain.dimensions == 2 and len(setting.points):
        title, words = "The points", describe(setting.points, setting.domain)
        picture = draw_points(setting.points, setting.domain, folder, setting.source)[0].name
        markdown += [f"## {title}", f"![{title}]({picture})", words]
        page += [f"<h2>{title}</h2>", f'<img src="{picture}" alt="{title}">', f"<p>{html.escape(words)}</p>"]
    for experiment in experiments:
        found = rows[experiment.name]
        pictures = [path for path in experiment.draw(found, folder) if path.suffix == ".png"]
        tables, claims = experiment.tables(found), experiment.claims(found)
        (folder / f"{experiment.name}.md").write_text("\n\n".join(map(_table_md, tables)) + "\n", "utf-8")
        markdown += [f"## {experiment.title}", *(f"![{experiment.title}]({p.name})" for p in pictures)]
        markdown += [*map(_table_md, tables), _claims_md(claims)]
        page += [f"<h2 id={experiment.name!r}>{html.escape(experiment.title)}</h2>"]
        page += [f'<img src="{html.escape(p.name)}" alt="{html.escape(experiment.title)}">' for p in pictures]
        page += [*map(_table_html, tables), _claims_html(claims)]
    put_in_place(folder / "report.md", ("\n\n".join(part for part in markdown if part) + "\n").encode())
    top = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>The study</title><style>{STYLE}</style>'
    put_in_place(folder / "index.html", "\n".join([top, *page, "</html>"]).encode())


def _table_md(table: Table) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (table.header, *table.rows)]
    lines.insert(1, "|---" + "|---:" * (len(table.header) - 1) + "|")
    return f"{table.title}\n\n" + "\n".join(lines)


def _table_html(table: Table) -> str:
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in table.header)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in row) + "</tr>" for row in table.rows)
    return f"<p>{html.escape(table.title)}</p><table><tr>{head}</tr>{body}</table>"


def _claims_md(claims: Sequence[Claim]) -> str:
    return "\n".join(f"- {c.text} **{c.verdict.capitalize()}**: {c.because}" for c in claims)


def _claims_html(claims: Sequence[Claim]) -> str:
    items = (f"{html.escape(c.text)} <b>{c.verdict.capitalize()}</b>: {html.escape(c.because)}" for c in claims)
    return "<ul>" + "".join(f"<li>{item}</li>" for item in items) + "</ul>" if claims else ""
