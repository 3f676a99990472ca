"""What a person sees of a sweep: a table that lives on a terminal, or a line for each cell."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

from satchel.cli.output import say, shown
from satchel.sweeps.jobs import Export, Job, Measurement, Quality, Record, name_of
from satchel.sweeps.planning import Plan
from satchel.sweeps.progress import Progress, duration
from satchel.sweeps.results import Results
from satchel.units import counted, megabytes

_SHOWN = 12  # rows of the live table
_NARROW = 60  # columns that two texts side by side need


class LineWatcher:
    """A line for each piece of work, on standard error."""

    def __init__(self, plan: Plan, results: Results, retry: bool = False) -> None:
        self.progress = Progress(plan)
        for name in list(self.progress.left):
            if results.is_done(name, retry):
                self.progress.skip(name)
        left, total = len(self.progress.left), self.progress.total
        if left < total:
            say(f"going on: {total - left} of {total} pieces of work are done")

    def begun(self, job: Job) -> None:
        pass

    def done(self, job: Job, record: Record) -> None:
        self.progress.finish(name_of(job), record)
        at = f"[{self.progress.finished}/{self.progress.total}]"
        left = duration(self.progress.seconds_left())
        say(f"{at} {job.label}: {told(job, record)}; {left} left")

    def __enter__(self) -> LineWatcher:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def told(job: Job, record: Record) -> str:
    """What came of a job, in a few words."""
    if not record["ok"]:
        return f"failed: {record['error']['message']}"
    if isinstance(job, Export):
        size = megabytes(record["file_size_bytes"])
        return f"exported, {size}, {record.get('export_seconds', 0):.1f} s"
    if isinstance(job, Quality):
        return _quality(record["document"])
    return speed_of(record["document"])


def speed_of(document: dict[str, Any]) -> str:
    """
    >>> speed_of({"prefill_tok_s": 1234.5, "decode_tok_s": 56.78})
    'prefill 1,234, decode 56.8 tok/s'
    """
    if "decode_tok_s" in document:
        guessing = document.get("lookahead")
        decode = guessing["tok_s"] if guessing else document["decode_tok_s"]
        return f"prefill {document['prefill_tok_s']:,.0f}, decode {decode:,.1f} tok/s"
    milliseconds = document.get("median_ms") or document["median_s"] * 1000
    return f"{milliseconds:,.2f} ms"


def _quality(document: dict[str, Any]) -> str:
    parts = [f"{phase} {found['ppl']:.3f}" for phase, found in document["phases"].items()]
    parts += [f"{task}" for task in document["tasks"]]
    return f"perplexity {', '.join(parts)}" if document["phases"] else ", ".join(parts)


class LiveWatcher(LineWatcher):
    """A table of the last pieces of work, what runs now, and how far it is."""

    def __init__(self, plan: Plan, results: Results, retry: bool = False) -> None:
        super().__init__(plan, results, retry)
        from rich.live import Live

        self.lines: list[tuple[str, str, str]] = []
        self.running: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self.impossible = len(plan.cells) - len(plan.possible)
        self.name = plan.experiment.name
        self.live = Live(self, refresh_per_second=4, console=_console(), transient=False)

    def __enter__(self) -> LineWatcher:
        self.live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.live.__exit__(*error)  # type: ignore[arg-type]

    def begun(self, job: Job) -> None:
        self.running[name_of(job)] = _what(job)

    def done(self, job: Job, record: Record) -> None:
        name = name_of(job)
        self.running.pop(name, None)
        self.progress.finish(name, record)
        style = "" if record["ok"] else "red"
        self.lines.append((job.label, told(job, record), style))

    def __rich_console__(self, _: Any, options: Any) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        lines = [(Text(shown(label)), Text(shown(what), s)) for label, what, s in self.lines]
        lines = lines[-_SHOWN:]
        for what in self.running.values():
            label, _, doing = what.partition("\t")
            lines.append((Text(shown(label), "bold"), Text(doing, "bold")))
        table = Table(box=None, expand=True, padding=(0, 1, 0, 0), show_header=False)
        table.add_column(ratio=4, no_wrap=True, overflow="ellipsis")
        if options.max_width >= _NARROW:
            table.add_column(ratio=5, no_wrap=True, overflow="ellipsis")
            for pair in lines:
                table.add_row(*pair)
        else:  # one below the other
            for pair in lines:
                table.add_row(pair[0])
                table.add_row(Text("  ").append_text(pair[1]))
        p = self.progress
        head = Text.assemble((self.name, "bold"), f"  {p.finished} of {p.total} pieces of work")
        if p.failed:
            head.append(f", {p.failed} failed", "red")
        if self.impossible:
            head.append(f", {counted(self.impossible, 'cell')} not possible")
        spent = duration(p.clock() - p.started)
        left = duration(p.seconds_left()) if p.left else "nothing"
        bar = ProgressBar(total=max(p.total, 1), completed=p.finished, width=None)
        line = Table.grid(expand=True, padding=(0, 2, 0, 0))  # a bar alone would not end its line
        line.add_column(ratio=1)
        line.add_column(no_wrap=True)
        times = Text(f"{spent} so far, {left} left", "dim")
        if options.max_width >= _NARROW:
            line.add_row(bar, times)
        else:
            line.add_row(times)
        # The last line is empty: a terminal writes ^C where the cursor stands, and at the end of a
        # full line that would move everything down.
        yield Group(head, line, table, Text(""))


def _what(job: Job) -> str:
    doing = {Export: "exporting …", Quality: "evaluating …", Measurement: "measuring …"}
    return f"{job.label}\t{doing[type(job)]}"


def _console(**options: Any) -> Any:
    from rich.console import Console

    return Console(stderr=True, **options)


def watcher_for(plan: Plan, results: Results, retry: bool, quiet: bool) -> LineWatcher:
    """A live table on a terminal where rich is installed, else lines."""
    if not quiet and sys.stderr is not None and sys.stderr.isatty():
        try:
            import rich  # noqa: F401

            return LiveWatcher(plan, results, retry)
        except ImportError:
            pass
    return LineWatcher(plan, results, retry)
