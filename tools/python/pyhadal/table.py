"""Tables as text, Markdown, HTML, LaTeX and CSV."""

from __future__ import annotations

import csv
import dataclasses
import html
import io
import re
import unicodedata
from typing import Any, Iterable, Union


@dataclasses.dataclass(frozen=True)
class Cell:
    """`value`: the number behind the text, for CSV. `best`: in bold. `mark`: "good", "fair" or "bad", a colour in HTML."""

    text: str
    value: "float | int | None" = None
    best: bool = False
    mark: str = ""


def number_cell(value: "float | None", digits: str) -> Cell:
    """The number as format(value, digits) has it; None: a dash."""
    return Cell("–") if value is None else Cell(format(value, digits), value)


@dataclasses.dataclass
class Table:
    """Rows below a header. The first column is left-aligned, the others right-aligned. Texts are escaped by the writers."""

    columns: "list[str]"
    rows: "list[list[Cell]]" = dataclasses.field(default_factory=list)
    title: str = ""
    note: str = ""
    run: str = ""  # of a table of one run: its name

    def add(self, *cells: "Union[Cell, str, int]") -> None:
        """Adds a row. A cell that is a plain text or number has no mark."""
        self.rows.append([cell if isinstance(cell, Cell) else
                          Cell(str(cell), None if isinstance(cell, str) else cell) for cell in cells])

    @classmethod
    def from_json(cls, table: "dict[str, Any]") -> "Table":
        """A table of `hadal summary --format json`."""
        rows = [[Cell(text, value) for text, value in zip(texts, values)]
                for texts, values in zip(table["rows"], table["values"])]
        return cls(table["columns"], rows, table.get("title", ""), table.get("note", ""), table.get("run", ""))

    def to_text(self) -> str:
        """Columns of equal width."""
        rows = [self.columns, *([one_line(cell.text) for cell in row] for row in self.rows)]
        widths = [max(_width(row[i]) for row in rows) for i in range(len(self.columns))]
        lines = []
        for row in rows:
            cells = [_pad(text, width, right=i > 0) for i, (text, width) in enumerate(zip(row, widths))]
            lines.append("  ".join(cells).rstrip() + "\n")
        return "".join(lines)

    def to_markdown(self) -> str:
        """A table of GitHub's Markdown."""
        lines = [_bars(map(escape_markdown, self.columns)),
                 "|---" + "|---:" * (len(self.columns) - 1) + "|\n"]
        for row in self.rows:
            lines.append(_bars(f"**{escape_markdown(cell.text)}**" if cell.best else escape_markdown(cell.text)
                               for cell in row))
        return "".join(lines)

    def to_html(self) -> str:
        """A <table> without its title and note, which the page's template places."""
        head = "".join(f"<th>{html.escape(column)}</th>" for column in self.columns)
        body = []
        for row in self.rows:
            cells = []
            for cell in row:
                text = html.escape(cell.text)
                kind = f' class="{html.escape(cell.mark)}"' if cell.mark else ""
                cells.append(f"<td{kind}>{f'<b>{text}</b>' if cell.best else text}</td>")
            body.append(f"<tr>{''.join(cells)}</tr>\n")
        return f'<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{"".join(body)}</tbody></table>\n'

    def to_latex(self) -> str:
        """A tabular of booktabs; pdflatex with UTF-8 sets it."""
        lines = ["\\begin{tabular}{l" + "r" * (len(self.columns) - 1) + "}\n\\toprule\n",
                 " & ".join(map(escape_latex, self.columns)) + " \\\\\n\\midrule\n"]
        for row in self.rows:
            lines.append(" & ".join(f"\\textbf{{{escape_latex(cell.text)}}}" if cell.best else escape_latex(cell.text)
                                    for cell in row) + " \\\\\n")
        return "".join(lines) + "\\bottomrule\n\\end{tabular}\n"

    def to_csv(self) -> str:
        """Commas and a header; numbers with all their digits."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        for row in self.rows:
            writer.writerow([cell.text if cell.value is None else repr(cell.value) for cell in row])
        return out.getvalue()


def _bars(cells: "Iterable[str]") -> str:
    return "| " + " | ".join(cells) + " |\n"


def _width(text: str) -> int:
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def _pad(text: str, width: int, right: bool) -> str:
    space = " " * (width - _width(text))
    return space + text if right else text + space


def one_line(text: str) -> str:
    """Control characters, which could move a terminal's cursor or end a row, as spaces."""
    return "".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in text)


def escape_markdown(text: str) -> str:
    """Text that Markdown shows as it is, in one line: markup, links, HTML and the borders of cells are escaped."""
    text = re.sub(r"([\\`*_{}\[\]|~$])", r"\\\1", one_line(text))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
          ">": r"\textgreater{}", "|": r"\textbar{}", "×": r"$\times$", "−": r"$-$", "‖": r"$\Vert$",
          "Δ": r"$\Delta$", "√": r"$\surd$", "∂": r"$\partial$", "≥": r"$\ge$", "≤": r"$\le$", "≈": r"$\approx$", "→": r"$\to$",
          **{c: "\\" + c for c in "&%$#_{}"}}


def escape_latex(text: str) -> str:
    """Text that LaTeX sets as it is."""
    return "".join(_LATEX.get(c, c) for c in one_line(text))
