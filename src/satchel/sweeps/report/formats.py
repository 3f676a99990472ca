"""A table as HTML, Markdown and LaTeX."""

from __future__ import annotations

import re
from html import escape

from satchel.sweeps.report.tables import Entry, Table

_LONG = 28  # letters that a narrow screen may break
_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "°": r"\textdegree{}",
    "…": r"\ldots{}",
    "±": r"$\pm$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


def html(table: Table) -> str:
    """With the reasons below; the best figure of each model is bold."""

    def shown(entry: Entry, column: int) -> str:
        if column < table.labels:
            css = ' class="long"' if len(entry.text) > _LONG else ""
            return f"<td{css}>{_breakable(entry.text)}</td>"
        if entry.note:
            reason = escape(table.notes[entry.note])
            return f'<td class="n"><sup title="{reason}">{escape(entry.text)}</sup></td>'
        text = f"<b>{escape(entry.text)}</b>" if entry.best else escape(entry.text)
        low_high = ""
        if entry.spread:
            low_high = f' title="{entry.spread[0]:.6g} to {entry.spread[1]:.6g}"'
        return f'<td class="n"{low_high}>{text}</td>'

    head = "".join(
        f"<th{'' if i < table.labels else ' class=n'}>{escape(name)}</th>"
        for i, name in enumerate(table.head)
    )
    body, before = [], ""
    for row in table.rows:
        first = ' class="first"' if row[0].text != before else ""
        cells = [*row]
        if row[0].text == before:
            cells[0] = Entry("")
        before = row[0].text
        body.append(f"<tr{first}>{''.join(shown(e, i) for i, e in enumerate(cells))}</tr>")
    notes = "".join(
        f"<li><sup>{escape(letter)}</sup> {escape(reason)}</li>"
        for letter, reason in table.notes.items()
    )
    below = f'<ul class="notes">{notes}</ul>' if notes else ""
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(body)}</table></div>{below}'


def _breakable(text: str) -> str:
    """A narrow screen may break a name behind what joins its parts, and not within a word.

    >>> _breakable("vit_b_16")
    'vit_<wbr>b_<wbr>16'
    """
    return re.sub("([_/:])", r"\1<wbr>", escape(text, quote=False))


def markdown(table: Table) -> str:
    """For a README; columns of figures are set to the right."""

    def cell(text: str) -> str:
        return text.replace("|", "\\|")

    rule = ["---"] * table.labels + ["---:"] * (len(table.head) - table.labels)
    lines = [
        f"**{table.title}.** {table.about}",
        "",
        "| " + " | ".join(map(cell, table.head)) + " |",
        "|" + "|".join(rule) + "|",
    ]
    for row in table.rows:
        texts = [f"**{cell(e.text)}**" if e.best else cell(e.text) for e in row]
        lines.append("| " + " | ".join(texts) + " |")
    if table.notes:
        lines.append("")
        lines += [f"- {letter}: {reason}" for letter, reason in table.notes.items()]
    return "\n".join(lines) + "\n"


def latex(table: Table) -> str:
    """For a paper that uses booktabs; a reason is a superscript, explained below."""
    columns = "l" * table.labels + "r" * (len(table.head) - table.labels)
    lines = [
        r"\begin{table}[t]",
        r"\centering",
        rf"\caption{{{_tex(table.title)}. {_tex(table.about)}}}",
        rf"\label{{tab:{table.name}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join(_tex(name) for name in table.head) + r" \\",
        r"\midrule",
    ]
    before = ""
    for number, row in enumerate(table.rows):
        if number and row[0].text != before:
            lines.append(r"\addlinespace")
        texts = [_tex_entry(entry) for entry in row]
        if row[0].text == before:
            texts[0] = ""
        before = row[0].text
        lines.append(" & ".join(texts) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    if table.notes:
        told = "; ".join(f"$^{{{letter}}}${_tex(why)}" for letter, why in table.notes.items())
        lines.append(rf"\par\smallskip\footnotesize {told}")
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def _tex_entry(entry: Entry) -> str:
    if entry.note:
        return f"$^{{{entry.note}}}$"
    return rf"\textbf{{{_tex(entry.text)}}}" if entry.best else _tex(entry.text)


def _tex(text: str) -> str:
    """
    >>> _tex("8da4w_x, 50%")
    '8da4w\\\\_x, 50\\\\%'
    """
    return "".join(_LATEX.get(character, character) for character in text)
