"""Write the tables, pictures and verdicts to one page, as Markdown and as HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path

from veilmap.files.atomic_writes import write_atomically
from veilmap.reproduce.data import describe, draw_points
from veilmap.reproduce.study import Claim, Experiment, Row, Setting, Table

PAGE_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #8886; text-align: left; }
.number { text-align: right; white-space: nowrap; }
img { max-width: 100%; background: white; }
"""


def write_report(experiments: Sequence[Experiment], rows: dict[str, list[Row]], setting: Setting, folder: Path) -> None:
    """Write ``report.md`` and ``index.html``, which have the same content."""
    source = re.sub(r"[<>|&*`\[\]]", "", setting.source)  # it may contain any file name
    intro = (
        f"Data: {source}. Seed {setting.seed}, {setting.repeats} repetitions"
        f"{' (quick study: fewer points and repetitions than the full study)' if setting.quick else ''}. "
        "Random numbers are fixed to make the tables reproducible, so these releases are not private."
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
        write_atomically(folder / f"{experiment.name}.md", ("\n\n".join(map(_table_md, tables)) + "\n").encode())
        markdown += [f"## {experiment.title}", experiment.notes]
        markdown += [
            *(f"![{experiment.title}]({p.name})" for p in pictures),
            *map(_table_md, tables),
            _claims_md(claims),
        ]
        page += [f"<h2 id={experiment.name!r}>{html.escape(experiment.title)}</h2>"]
        page += [f"<p>{html.escape(experiment.notes)}</p>"] if experiment.notes else []
        page += [f'<img src="{html.escape(p.name)}" alt="{html.escape(experiment.title)}">' for p in pictures]
        page += [*map(_table_html, tables), _claims_html(claims)]
    write_atomically(folder / "report.md", ("\n\n".join(part for part in markdown if part) + "\n").encode())
    top = '<!doctype html><html lang="en"><meta charset="utf-8">'
    top += f'<meta name="viewport" content="width=device-width"><title>The study</title><style>{PAGE_STYLE}</style>'
    write_atomically(folder / "index.html", "\n".join([top, *page, "</html>"]).encode())


def _numbers(table: Table) -> list[bool]:
    """Return which columns contain only numbers."""
    return [all(row[k][:1].isdigit() or row[k][:1] in "-−" for row in table.rows) for k in range(len(table.header))]


def _table_md(table: Table) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in (table.header, *table.rows)]
    lines.insert(1, "|" + "|".join("---:" if number else "---" for number in _numbers(table)) + "|")
    return f"{table.title}\n\n" + "\n".join(lines)


def _table_html(table: Table) -> str:
    kinds = [' class="number"' if number else "" for number in _numbers(table)]

    def line(row: Sequence[str], tag: str) -> str:
        cells = (f"<{tag}{kind}>{html.escape(cell)}</{tag}>" for cell, kind in zip(row, kinds, strict=True))
        return "<tr>" + "".join(cells) + "</tr>"

    body = "".join(line(row, "td") for row in table.rows)
    table_html = f"<table><thead>{line(table.header, 'th')}</thead><tbody>{body}</tbody></table>"
    return f'<p>{html.escape(table.title)}</p><div class="wide">{table_html}</div>'


def _claims_md(claims: Sequence[Claim]) -> str:
    return "\n".join(f"- {c.text} **{c.verdict.capitalize()}**: {c.because}" for c in claims)


def _claims_html(claims: Sequence[Claim]) -> str:
    items = (f"{html.escape(c.text)} <b>{c.verdict.capitalize()}</b>: {html.escape(c.because)}" for c in claims)
    return "<ul>" + "".join(f"<li>{item}</li>" for item in items) + "</ul>" if claims else ""
