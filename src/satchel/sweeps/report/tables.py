"""The tables of a sweep: who is how fast, how large and how good, by recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from satchel.backends import title_of
from satchel.sweeps.peers import label_of
from satchel.sweeps.results import Row
from satchel.units import megabytes

OWN = "their own"  # the precision of peers that have but one
NOT_ASKED = "–"
_WORK = ("device", "prompt", "threads_asked")  # besides the model; shown only where they differ


@dataclass(frozen=True)
class Entry:
    """A figure, or a letter that stands for the reason why there is none."""

    text: str
    value: float | None = None
    spread: tuple[float, float] | None = None
    note: str = ""  # the letter
    best: bool = False


@dataclass
class Table:
    """What a page, a paper or a README shows."""

    name: str  # of its files
    title: str
    about: str
    head: list[str]
    labels: int  # how many columns are names
    rows: list[list[Entry]]
    notes: dict[str, str] = field(default_factory=dict)  # reasons by letter
    work: int = 1  # how many of the names say what was done; the others, by what means

    def groups(self) -> Iterator[list[list[Entry]]]:
        """Lines that do the same work, and so are to be compared."""
        for _, lines in groupby(self.rows, lambda row: [e.text for e in row[: self.work]]):
            yield list(lines)


@dataclass(frozen=True)
class Measure:
    """A column of the results, and how it is told."""

    name: str
    title: str
    about: str
    field: str
    write: Callable[[float], str]
    larger_is_better: bool = True
    samples: str | None = None
    of_program: bool = False  # the same for every prompt and device


def tokens(value: float) -> str:
    """A speed as people read it.

    >>> tokens(56.78), tokens(1234.5)
    ('56.8', '1,234')
    """
    return f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def milliseconds(value: float) -> str:
    """
    >>> milliseconds(0.0123456)
    '12.35'
    """
    return f"{value * 1000:,.2f}"


def plain_megabytes(value: float) -> str:
    """
    >>> plain_megabytes(98_362_432), plain_megabytes(81_700)
    ('98.4', '0.082')
    """
    return f"{value / 1e6:,.1f}" if value >= 1e6 else f"{value / 1e6:.3f}"


LANGUAGE = (
    Measure(
        "prefill",
        "Prefill, tokens a second",
        "How fast a prompt is read. More is better.",
        "prefill_tok_s",
        tokens,
        samples="prefill_tok_s_samples",
    ),
    Measure(
        "decode",
        "Decode, tokens a second",
        "How fast an answer is written, one conversation at a time. More is better.",
        "decode_tok_s",
        tokens,
        samples="decode_tok_s_samples",
    ),
    Measure(
        "ttft",
        "Time to first token, ms",
        "From the whole prompt to the first token of the answer. Less is better.",
        "ttft_s",
        milliseconds,
        False,
        samples="ttft_s_samples",
    ),
)
VISION = (
    Measure(
        "latency",
        "Vision models: latency, ms",
        "Of one image, the median. Less is better.",
        "latency_s",
        milliseconds,
        False,
        samples="latency_s_samples",
    ),
    Measure(
        "snr",
        "Vision models: signal to noise of the outputs, dB",
        "Against the same model in floats, on an example. More is better; floats have none.",
        "output_snr_db",
        lambda value: f"{value:.1f}",
        of_program=True,
    ),
)
BOTH = (
    Measure(
        "memory",
        "Peak memory, MB",
        "Of the process that measures, weights included. Less is better.",
        "peak_rss_bytes",
        plain_megabytes,
        False,
    ),
    Measure(
        "size",
        "File, MB",
        "Less is better.",
        "file_size_bytes",
        plain_megabytes,
        False,
        of_program=True,
    ),
)
QUALITY = (
    Measure(
        "perplexity",
        "Perplexity",
        "Of what runs, on the text of the experiment. Less is better.",
        "ppl_device",
        lambda value: f"{value:,.3f}",
        False,
        of_program=True,
    ),
    Measure(
        "perplexity-float",
        "Perplexity in floats",
        "Of the same models before they were rounded, on the same text.",
        "ppl_fp",
        lambda value: f"{value:,.3f}",
        False,
        of_program=True,
    ),
)


def tables_of(rows: Sequence[Row]) -> list[Table]:
    """All tables that the results have figures or reasons for."""
    language = [row for row in rows if row["kind"] == "language"]
    vision = [row for row in rows if row["kind"] == "vision"]
    found = [_pivot(measure, language) for measure in (*LANGUAGE, *QUALITY)]
    found += [_pivot(measure, language) for measure in (*_tasks(language), *BOTH)]
    found += [_pivot(measure, vision) for measure in VISION]
    for measure in BOTH:
        title = f"Vision models: {measure.title[0].lower()}{measure.title[1:]}"
        found.append(_pivot(replace(measure, name=f"vision-{measure.name}", title=title), vision))
    return [table for table in found if table is not None]


def backend_of(row: Row) -> str:
    """Who ran it, as a table calls it."""
    if row["peer"]:
        return label_of(row["peer"])
    return f"Satchel {title_of(row['target'] or '')}".strip()


def _tasks(rows: Iterable[Row]) -> list[Measure]:
    """The metrics of the tasks that were run; the errors of these are not columns."""
    names = {
        (task, metric): None
        for row in rows
        for task, phases in (row["tasks"] or {}).items()
        for metric in phases.get("device", {})
        if metric in ("acc", "acc_norm", "exact_match")
    }
    for row in rows:
        for task, metric in names:
            known = (row["tasks"] or {}).get(task, {}).get("device", {})
            row[f"task {task} {metric}"] = known.get(metric)
    return [
        Measure(
            f"task-{task}-{metric}",
            f"{task}, {metric}, %",
            "More is better.",
            f"task {task} {metric}",
            lambda value: f"{value * 100:.1f}",
            of_program=True,
        )
        for task, metric in names
    ]


def _pivot(measure: Measure, rows: Sequence[Row]) -> Table | None:
    """Models and backends down, recipes across; None if nobody has such a figure. What does the
    same work stands together."""
    if not any(row.get(measure.field) is not None for row in rows):
        # A table of reasons alone is one too, for what every cell should have.
        wanted = measure in (*LANGUAGE, VISION[0])
        if not wanted or not any(row["status"] in ("failed", "impossible") for row in rows):
            return None
    ours = [row for row in rows if not row["peer"]]
    if measure.of_program:
        rows = ours

    def differing(keys: Sequence[str]) -> list[str]:
        return [key for key in keys if len({row[key] for row in ours}) > 1]

    work = ["model", *differing([] if measure.of_program else _WORK)]
    keys = [*work, "backend", *differing(["mode"])]
    recipes = list(dict.fromkeys(row["recipe"] or OWN for row in rows))
    recipes.sort(key=lambda recipe: recipe == OWN)
    found: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in rows:
        named = {**row, "backend": backend_of(row)}
        place = tuple("" if named[key] is None else str(named[key]) for key in keys)
        by_recipe = found.setdefault(place, {})
        recipe = row["recipe"] or OWN
        known = by_recipe.get(recipe)
        # A program has the same figure in all its cells, some of which may not be possible.
        if known is None or _tells_more(row, known, measure.field):
            by_recipe[recipe] = row
    head = [*(key.removesuffix("_asked") for key in keys), *recipes]
    table = Table(measure.name, measure.title, measure.about, head, len(keys), [])
    letters: dict[str, str] = {}
    table.work = len(work)
    order = _order(place[: len(work)] for place in found)
    for place, by_recipe in sorted(found.items(), key=lambda item: order[item[0][: len(work)]]):
        entries = [Entry(text) for text in place]
        entries += [_entry(measure, by_recipe.get(recipe), letters) for recipe in recipes]
        table.rows.append(entries)
    table.notes = {letter: reason for reason, letter in letters.items()}
    _mark_best(table, measure.larger_is_better)
    return table


def _order(works: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], list[int]]:
    """As they come, but all of a model together, and within it all of a device, and so on.

    >>> _order([("a", "x"), ("b", "x"), ("a", "y")])
    {('a', 'x'): [0, 0], ('b', 'x'): [1, 0], ('a', 'y'): [0, 1]}
    """
    unique = list(dict.fromkeys(works))
    firsts = [list(dict.fromkeys(column)) for column in zip(*unique, strict=True)]
    return {
        work: [first.index(name) for first, name in zip(firsts, work, strict=True)]
        for work in unique
    }


def _tells_more(row: Row, known: Row, field: str) -> bool:
    """Whether it has the figure, or the better reason why there is none yet, for the same place."""
    order = ("impossible", "failed", "pending", "ok")
    ranks = [(each.get(field) is not None, order.index(each["status"])) for each in (row, known)]
    return ranks[0] > ranks[1]


def _entry(measure: Measure, row: Row | None, letters: dict[str, str]) -> Entry:
    if row is None:
        return Entry(NOT_ASKED)
    value = row.get(measure.field)
    reason = _reason(measure, row, value)
    if reason:
        letter = letters.setdefault(reason, _letter(len(letters)))
        return Entry(letter, note=letter)
    if value is None:
        return Entry("")
    samples = row.get(measure.samples) if measure.samples else None
    spread = (min(samples), max(samples)) if samples and len(samples) > 1 else None
    text = measure.write(value)
    if row["peer"] and not row["recipe"] and row["recipe_description"]:
        text += f" ({row['recipe_description']})"
    return Entry(text, value, spread)


def _reason(measure: Measure, row: Row, value: float | None) -> str:
    """Why there is no figure, if there is none that may be shown."""
    if value is not None:
        emulated = row["emulated"] and not measure.of_program
        return (
            "measured on an emulator, whose speed and memory are not the chip's" if emulated else ""
        )
    if row["status"] in ("failed", "impossible"):
        return str(row["error"])
    return "not run yet" if row["status"] == "pending" else ""


def _mark_best(table: Table, larger: bool) -> None:
    """Of each model with the same prompt on the same device, where several have a figure."""
    by_work: dict[tuple[str, ...], list[tuple[list[Entry], int]]] = {}
    for row in table.rows:
        work = tuple(entry.text for entry in row[: table.work])
        for column in range(table.labels, len(row)):
            if row[column].value is not None:
                by_work.setdefault(work, []).append((row, column))
    for places in by_work.values():
        entries = [row[column] for row, column in places]
        best = (max if larger else min)(entries, key=lambda entry: entry.value or 0.0)
        if len(places) > 1:
            for row, column in places:
                old = row[column]
                if _figure(old) == _figure(best):  # to the digits that are shown
                    row[column] = Entry(old.text, old.value, old.spread, old.note, True)


def _figure(entry: Entry) -> str:
    """Without what a peer's own precision is called."""
    return entry.text.partition(" ")[0]


def _letter(number: int) -> str:
    """
    >>> [_letter(number) for number in (0, 25, 26)]
    ['a', 'z', 'aa']
    """
    first = _letter(number // 26 - 1) if number >= 26 else ""
    return first + chr(ord("a") + number % 26)


def size_range(rows: Sequence[Row]) -> str:
    """From the smallest file to the largest."""
    sizes = [row["file_size_bytes"] for row in rows if row["file_size_bytes"]]
    return f"{megabytes(min(sizes))} to {megabytes(max(sizes))}" if sizes else "no files"
