"""A table as HTML, Markdown and LaTeX."""

from __future__ import annotations

import re
from html import escape

from satchel.sweeps.report.tables import Entry, Table

_LONG = 28  # letters that a narrow screen may break
_WIDE = 14  # letters of a heading that may take two lines
_LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "`": r"\textasciigrave{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "°": r"\textdegree{}",
    "…": r"\ldots{}",
    "±": r"$\pm$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "·": r"$\cdot$",
    "×": r"$\times$",
    "≈": r"$\approx$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    # Behind the end of a row they would be an argument of it.
    **{character: f"{{{character}}}" for character in "[]*"},
}
_APART = "\u200b"  # a space of no width
_LATEX[_APART] = "{}"
_MARKDOWN = re.compile(r"[\\`*~<>|\[\]]|(?<!\w)_|_(?!\w)|&(?=[\w#]+;)")


def html(table: Table) -> str:
    """What does the same work below a line that names it, and the reasons below all."""

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

    def heading(name: str, column: int) -> str:
        css = ["n"] * (column >= table.labels) + ["wrap"] * (len(name) > _WIDE)
        return f'<th class="{" ".join(css)}">{_breakable(name)}</th>'

    columns = list(enumerate(table.head))[table.work :]
    head = "".join(heading(name, i) for i, name in columns)
    body = []
    for lines in table.groups():
        name, *place = (entry.text for entry in lines[0][: table.work])
        aside = f" <small>{_breakable(' · '.join(place))}</small>" if place else ""
        body.append(
            f'<tr class="work"><th colspan="{len(columns)}"><span>{_breakable(name)}{aside}'
            "</span></th></tr>"
        )
        for row in lines:
            body.append(f"<tr>{''.join(shown(row[i], i) for i, _ in columns)}</tr>")
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

    rule = ["---"] * table.labels + ["---:"] * (len(table.head) - table.labels)
    lines = [
        f"**{_plain(table.title)}.** {_plain(table.about)}",
        "",
        "| " + " | ".join(map(_plain, table.head)) + " |",
        "|" + "|".join(rule) + "|",
    ]
    for row in table.rows:
        texts = [f"**{_plain(e.text)}**" if e.best else _plain(e.text) for e in row]
        lines.append("| " + " | ".join(texts) + " |")
    if table.notes:
        lines.append("")
        lines += [f"- {letter}: {_plain(reason)}" for letter, reason in table.notes.items()]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """A text that Markdown shows as it is, in one line.

    >>> print(_plain("mobilenet_v3 *new* a|b"))
    mobilenet_v3 \\*new\\* a\\|b
    """
    return _MARKDOWN.sub(lambda found: f"\\{found[0]}", " ".join(text.split()))


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
    for number, group in enumerate(table.groups()):
        if number:
            lines.append(r"\addlinespace")
        for i, row in enumerate(group):
            texts = [_tex_entry(entry) for entry in row]
            texts[: table.work] = [""] * table.work if i else texts[: table.work]
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
    apart = re.sub("-(?=-)", f"-{_APART}", text)  # two would become one longer dash
    return "".join(_LATEX.get(character, character) for character in apart)
