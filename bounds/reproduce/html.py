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
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid #ccc; }
table { border-collapse: collapse; width: 100%; margin: .8rem 0; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .5rem; border-bottom: 1px solid #ddd; }
.scroll { overflow-x: auto; } img { max-width: 100%; height: auto; }
.v { font-weight: 600; white-space: nowrap; } .v::before { content: attr(data-mark) " "; }
dl { display: grid; grid-template-columns: 9rem 1fr; gap: .2rem .8rem; } dt { color: #555; } dd { margin: 0; }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; } dt { margin-top: .4rem; } }
@media print { body { font-size: 10pt; max-width: none; } section { break-inside: avoid; } a { color: inherit; } }
</style></head><body>
<h1>{{ title }}</h1>
<p>{{ intro }}</p>
<div class="scroll"><table>
<thead><tr><th>section</th><th>claim</th><th>paper</th><th>ours</th><th>verdict</th><th>seconds</th></tr></thead><tbody>
{% for section in sections %}{% for v in section.verdicts %}
<tr><td>{{ v.section }}</td><td><a href="#c{{ section.number }}">{{ v.claim }}</a></td><td>{{ v.paper }}</td>
<td>{{ v.ours }}</td><td class="v" data-mark="{{ marks[v.verdict] }}">{{ v.verdict }}</td>
<td>{{ '%.1f' % section.seconds }}</td></tr>
{% endfor %}{% endfor %}</tbody></table></div>
{% for section in sections %}
<section id="c{{ section.number }}"><h2>{{ section.title }}</h2>
{% for v in section.verdicts %}
<h3>{{ v.claim }} (section {{ v.section }})</h3>
<p>{{ v.plain }}</p>
<dl><dt>paper</dt><dd>{{ v.paper }}</dd><dt>ours</dt><dd>{{ v.ours }}</dd>
<dt>verdict</dt><dd class="v" data-mark="{{ marks[v.verdict] }}">{{ v.verdict }}</dd>
<dt>reason</dt><dd>{{ v.reason }}</dd>
{% if v.left_on_table %}<dt>left on the table</dt><dd>{{ v.left_on_table }}</dd>{% endif %}</dl>
{% endfor %}
{% for name, data in section.figures %}
<p><img alt="{{ name }}" src="data:image/png;base64,{{ data }}"></p>
{% endfor %}</section>
{% endfor %}
<p>{{ footer }}</p>
</body></html>
"""
_MARKS = {"reproduced": "●", "direction only": "◐", "not reproduced": "○", "not testable here": "–"}


def render(title: str, intro: str, sections: Sequence[Mapping[str, Any]], footer: str) -> str:
    """The page.

    Parameters
    ----------
    sections
        Per claim file: ``number``, ``title``, ``verdicts`` (dicts of `bounds.claims.Verdict`), ``seconds`` and
        ``figures`` as (name, base64 of a PNG).
    """
    from jinja2 import Environment

    environment = Environment(autoescape=True)
    return environment.from_string(_TEMPLATE).render(
        title=title, intro=intro, sections=sections, footer=footer, marks=_MARKS
    )


def encoded(figure: Figure) -> str:
    """A figure as base64 of a PNG."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    return base64.b64encode(buffer.getvalue()).decode("ascii")
