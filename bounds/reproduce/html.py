"""The report as one self-contained HTML file: no network, readable on paper and on a phone."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TEMPLATE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; color: #111; max-width: 70rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.3rem; margin-top: 2.2rem; border-bottom: 1px solid #ccc; }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
table { border-collapse: collapse; width: 100%; margin: .8rem 0; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .5rem; border-bottom: 1px solid #ddd; }
th:last-child, td:last-child { text-align: right; } th { white-space: nowrap; }
td, dd { overflow-wrap: anywhere; } dd { white-space: pre-line; }
td:nth-child(2) { width: 24%; } td:nth-child(3) { width: 15%; } img { max-width: 100%; height: auto; }
.v { font-weight: 600; white-space: nowrap; } .v::before { content: attr(data-mark) " "; }
dl { display: grid; grid-template-columns: 9rem 1fr; gap: .3rem .8rem; } dt { color: #555; } dd { margin: 0; }
dl.terms { font-size: .9rem; }
@media (max-width: 40rem) {
  body { padding: .7rem; } h1 { font-size: 1.35rem; }
  dl { grid-template-columns: 1fr; gap: 0; } dt { margin-top: .5rem; font-size: .85rem; }
  table, tbody, tr, td { display: block; width: auto !important; } thead { display: none; }
  tr { border-bottom: 1px solid #bbb; padding: .5rem 0; } td { border: 0; padding: .1rem 0; }
  td::before { content: attr(data-name) ": "; color: #555; } td.claim::before { content: none; }
  td:last-child { text-align: left; } td:empty { display: none; } td.claim { font-weight: 600; }
}
@media print {
  body { font-size: 9.5pt; max-width: none; padding: 0; } a { color: inherit; text-decoration: none; }
  .head { break-inside: avoid; break-after: avoid; } tr, img, dd { break-inside: avoid; } img { max-height: 20cm; }
  table { font-size: 8.5pt; }
}
</style></head><body>
<h1>{{ title }}</h1>
<p>{{ intro }}</p>
<dl class="terms">{% for term, meaning in terms %}<dt>{{ term }}</dt><dd>{{ meaning }}</dd>{% endfor %}</dl>
<table>
<thead><tr><th>section</th><th>claim</th><th>paper</th><th>ours</th><th>verdict</th><th>CPU s</th></tr></thead><tbody>
{% for section in sections %}{% for v in section.verdicts %}
<tr><td data-name="section">{{ v.section }}</td>
<td class="claim"><a href="#c{{ section.number }}-{{ loop.index }}">{{ v.claim }}</a></td>
<td data-name="paper">{{ v.paper }}</td><td data-name="ours">{{ v.ours }}</td>
<td class="v" data-name="verdict" data-mark="{{ marks[v.verdict] }}">{{ v.verdict }}</td>
<td data-name="CPU s">{{ '%.1f' % section.cpu_seconds if loop.first else '' }}</td></tr>
{% endfor %}{% endfor %}</tbody></table>
{% for section in sections %}
<section>
{% for v in section.verdicts %}
<div class="head">{% if loop.first %}<h2>{{ section.title }}</h2>{% endif %}
<h3 id="c{{ section.number }}-{{ loop.index }}">{{ v.claim }} (section {{ v.section }})</h3>
<p>{{ v.plain }}</p></div>
<dl><dt>paper</dt><dd>{{ v.paper }}</dd><dt>ours</dt><dd>{{ v.ours }}</dd>
<dt>verdict</dt><dd class="v" data-mark="{{ marks[v.verdict] }}">{{ v.verdict }}</dd>
{% if v.other_costs %}<dt>under other costs</dt><dd>{{ v.other_costs }}</dd>{% endif %}
<dt>reason</dt><dd>{{ v.reason }}</dd>
<dt>left on the table</dt><dd>{{ v.left_on_table }}</dd></dl>
{% endfor %}
{% for name, data in section.figures %}
<p><img alt="{{ name }}" src="data:image/png;base64,{{ data }}"></p>
{% endfor %}</section>
{% endfor %}
<p>{{ footer }}</p>
</body></html>
"""
_TERMS = (
    ("left on the table", "The share of its makespan each scheduler loses, in its worst case: for certain, because a "
     "quicker schedule was found and replayed, and at most, because no schedule is quicker than the lower bound."),
    ("verdict", "Computed from the measured numbers. Direction only: the effect is there, but not its size."),
    ("cost models", "Linear: the paper's published coefficients, or a line fitted to public profiles. Max-affine: two "
     "or three lines fitted to the same profiles, which do not misjudge small batches."),
)  # fmt: skip
_MARKS = {"reproduced": "●", "direction only": "◐", "not reproduced": "○", "not testable here": "–"}


def render(title: str, intro: str, sections: Sequence[Mapping[str, Any]], footer: str) -> str:
    """The page.

    Parameters
    ----------
    sections
        Per claim file: ``number``, ``title``, ``verdicts`` (dicts of `bounds.claims.Verdict`), ``cpu_seconds`` and
        ``figures`` as (name, base64 of a PNG).
    """
    from jinja2 import Environment

    environment = Environment(autoescape=True)
    return environment.from_string(_TEMPLATE).render(
        title=title, intro=intro, sections=sections, footer=footer, marks=_MARKS, terms=_TERMS
    )


def encoded(figure: Figure) -> str:
    """A figure as base64 of a PNG."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return base64.b64encode(buffer.getvalue()).decode("ascii")
