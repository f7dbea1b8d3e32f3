"""HTML pages: one style, light and dark, no script, each one file. Templates are in templates/; page.html is their base."""

from __future__ import annotations

from typing import Sequence

import jinja2
from markupsafe import Markup

from pyhadal.table import Table, escape_markdown


def render(template: str, **values: object) -> str:
    """A page. Every text is escaped, but Table and pictures (plot.py), which templates write by `table` and `picture`."""
    environment = jinja2.Environment(loader=jinja2.PackageLoader("pyhadal"), autoescape=True, trim_blocks=True,
                                     lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters["table"] = lambda table: Markup(table.to_html())
    environment.filters["picture"] = Markup
    return environment.get_template(template).render(**values)


def markdown_page(title: str, tables: "list[Table]", notes: "Sequence[str]" = ()) -> str:
    """Tables below their titles, as GitHub's Markdown. `notes`: after the title, a list."""
    text = f"# {escape_markdown(title)}\n\n" + markdown_list(notes)
    for table in tables:
        text += f"\n## {escape_markdown(table.title)}\n\n{table.to_markdown()}"
        if table.note:
            text += f"\n{escape_markdown(table.note)}\n"
    return text


def markdown_list(texts: "Sequence[str]") -> str:
    return "".join(f"- {escape_markdown(text)}\n" for text in texts)
