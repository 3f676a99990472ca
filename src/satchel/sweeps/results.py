"""A folder of results: records as they come, and one row for each cell made of them.

plan.json     all cells, with what was planned for them
records/      one file for each piece of work that is done: what a killed run goes on from
logs/         what the processes said
results.csv, results.jsonl, and with pyarrow results.parquet: a row for each cell
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from satchel.errors import ConfigError, blaming
from satchel.files import atomic_write, open_regular
from satchel.remarks import remark

Row = dict[str, Any]
# What a row calls a figure, and what the document of a measurement calls it.
_METRICS = {
    "prefill_tok_s": "prefill_tok_s",
    "decode_tok_s": "decode_tok_s",
    "ttft_s": "ttft_s",
    "latency_s": "median_s",
    "p95_s": "p95_s",
    "load_s": "load_s",
    "peak_rss_bytes": "peak_rss_bytes",
}
SAMPLED = ("prefill_tok_s", "decode_tok_s", "ttft_s", "latency_s")
_CONDITIONS = (
    *("temperature_before", "temperature_after", "cool_down_s"),
    *("bandwidth_before", "bandwidth_after"),
)
_FACTS = (
    *("machine", "cpu", "cores", "memory_bytes", "governor", "max_frequency_khz", "system"),
    *("python", "numpy", "satchel"),
)


class Results:
    """A folder of results, being written or read."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.records: dict[str, dict[str, Any]] = {}
        for path in sorted((self.folder / "records").glob("*.json")):
            record = _read_record(path)
            if record is None:
                remark(f"{path} is damaged, and counts as not done.")
            else:
                self.records[record["name"]] = record

    @staticmethod
    def are_in(folder: str | Path) -> bool:
        """Whether a sweep has written there."""
        return (Path(folder) / "plan.json").is_file()

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def write_plan(self, plan: Mapping[str, Any]) -> None:
        """Written anew when a sweep goes on; cells that the experiment no longer has are left out,
        and their records stay."""
        with atomic_write(self.folder / "plan.json") as file:
            file.write(json.dumps(plan, indent=1, ensure_ascii=False).encode())

    def read_plan(self) -> dict[str, Any]:
        """All cells, in their order."""
        if not self.are_in(self.folder):
            raise ConfigError(
                f"{self.folder} holds no results of a sweep", "satchel sweep makes such a folder."
            )
        path = self.folder / "plan.json"
        with blaming(ConfigError, f"{path} is not what satchel sweep wrote", "Run it again."):
            plan = dict(json.loads(path.read_text(encoding="utf-8")))
            if not plan["cells"]:
                raise ValueError("it has no cells")
            return plan

    def other_version(self, version: str) -> str | None:
        """Who wrote what is there, if it was another version of Satchel."""
        if not self.are_in(self.folder):
            return None
        with suppress(ConfigError):
            wrote = str(self.read_plan().get("satchel", "another version"))
            return wrote if wrote != version else None
        return None

    def add(self, record: dict[str, Any]) -> None:
        """Keep a record; from now on its work is done."""
        self.records[record["name"]] = record
        with atomic_write(self.folder / "records" / f"{record['name']}.json") as file:
            file.write(json.dumps(record, ensure_ascii=False).encode())

    def forget(self, name: str) -> None:
        """Its work is to be done again."""
        self.records.pop(name, None)
        (self.folder / "records" / f"{name}.json").unlink(missing_ok=True)

    def is_done(self, name: str, retry: bool = False) -> bool:
        """Whether there is a record; with ``retry``, one of success."""
        record = self.records.get(name)
        return record is not None and (record["ok"] or not retry)

    def rows(self) -> list[Row]:
        """One for each cell, in the order of the plan."""
        plan = self.read_plan()
        with blaming(ConfigError, f"{self.folder} holds odd results", "Run the sweep again."):
            return [self._row(cell, plan) for cell in plan["cells"]]

    def _row(self, cell: Mapping[str, Any], plan: Mapping[str, Any]) -> Row:
        export = self.records.get(f"export-{cell['export']}")
        quality = self.records.get(f"quality-{cell['quality']}")
        wanted = [self.records.get(name) for name in cell["measurements"]]
        found = [record for record in wanted if record is not None]
        good = [record for record in found if record["ok"]]
        needed = [export] if cell["export"] else []
        needed += [quality] if cell["quality"] else []
        problem = next((r for r in (*needed, *found) if r is not None and not r["ok"]), None)
        error = cell["impossible"] or (problem and problem["error"]) or {}
        status = "ok"
        if cell["impossible"]:
            status = "impossible"
        elif problem:
            status = "failed"
        elif None in needed or len(found) < len(wanted):
            status = "pending"
        documents = [record["document"] for record in good]
        first, last = (good[0], good[-1]) if good else ({}, {})
        row: Row = {
            "cell": cell["cell"],
            "experiment": plan["name"],
            "status": status,
            "failed_in": problem["kind"] if problem else None,
            "error": error.get("message"),
            "error_type": error.get("type"),
            "advice": error.get("advice"),
            **{key: cell[key] for key in ("kind", "model", "source", "recipe", "target", "mode")},
            **{key: cell[key] for key in ("prompt", "device", "peer")},
            "source_digest": cell.get("source_digest"),
            "threads": next((d["threads"] for d in documents if "threads" in d), None),
            "threads_asked": int(cell["thread"]),
            "prompt_tokens": next((d.get("prompt_tokens") for d in documents), None),
            "new_tokens": next((d.get("new_tokens") for d in documents), None),
            **_measured(cell, documents),
            **_made(export if export and export["ok"] else None, documents),
            **_judged(quality if quality and quality["ok"] else None),
            "planned_file_bytes": cell["planned"]["file_bytes"],
            "planned_export_bytes": cell["planned"]["export_bytes"],
            "planned_memory_bytes": cell["planned"]["memory_bytes"],
            **{key: plan[key] for key in ("runs", "repeats", "warmup")},
            "started": first.get("started"),
            "seconds": sum(record["seconds"] for record in found),
            "settings": cell["settings"],
            "export_command": export.get("command") if export else None,
            "bench_command": last.get("command"),
            "quality_command": quality.get("command") if quality else None,
            "peer_version": next((d.get("version") for d in documents), None),
            "kernels": next((d.get("kernels") for d in documents), None),
            "emulated": any(d.get("emulated") for d in documents) if documents else None,
        }
        # Before the first measurement and after the last.
        row |= {k: (first if k.endswith("before") else last).get(k) for k in _CONDITIONS}
        facts = [record["facts"] for record in good]
        row |= {key: _joined(fact.get(key) for fact in facts) for key in _FACTS}
        return row

    def write_tables(self) -> list[Path]:
        """Rows as CSV and as JSON lines, and as Parquet where pyarrow is installed."""
        import csv
        import io

        rows = self.rows()
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]))
        writer.writeheader()
        writer.writerows({key: _flat(value) for key, value in row.items()} for row in rows)
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        written = []
        for name, content in (("results.csv", text.getvalue()), ("results.jsonl", lines)):
            with atomic_write(self.folder / name) as file:
                file.write(content.encode())
            written.append(self.folder / name)
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError:
            return written
        path = self.folder / "results.parquet"
        table = pyarrow.table({key: _column(key, rows) for key in rows[0]})
        with atomic_write(path) as file:
            parquet.write_table(table, file)
        return [*written, path]


def _read_record(path: Path) -> dict[str, Any] | None:
    """A record that is whole; one that a full disk or a stranger left is as good as none."""
    with suppress(OSError, ValueError, RecursionError, KeyError, TypeError):
        with open(path, "rb", opener=open_regular) as file:
            record = dict(json.loads(file.read()))
        fields = {"name": str, "ok": bool, "kind": str, "seconds": (int, float)}
        if all(isinstance(record[field], kind) for field, kind in fields.items()):  # type: ignore[arg-type]
            return record
    return None


_DOCUMENTS = ("settings", "tasks")  # whose keys differ from row to row


def _measured(cell: Mapping[str, Any], documents: list[dict[str, Any]]) -> Row:
    """Medians over the repeats, and what they are medians of."""
    if cell["mode"] == "lookahead":
        documents = [_with_lookahead(document) for document in documents]
    for document in documents:
        if "median_ms" in document:  # a vision peer's
            document |= {"median_s": document["median_ms"] / 1e3, "p95_s": document["p95_ms"] / 1e3}
    row: Row = {}
    for name, field in _METRICS.items():
        values = [document[field] for document in documents if field in document]
        row[name] = statistics.median(values) if values else None
    several = len(documents) > 1
    row["samples_of"] = ("processes" if several else "runs") if documents else None
    for name in SAMPLED:
        field = _METRICS[name]
        if several:
            row[f"{name}_samples"] = [d[field] for d in documents if field in d]
        else:
            lists = [d.get("samples", {}).get(name, []) for d in documents]
            row[f"{name}_samples"] = lists[0] if lists else []
    return row


def _with_lookahead(document: dict[str, Any]) -> dict[str, Any]:
    guessing = document.get("lookahead")
    return {**document, "decode_tok_s": guessing["tok_s"], "samples": {}} if guessing else document


def _made(export: Mapping[str, Any] | None, documents: list[dict[str, Any]]) -> Row:
    known = export or {}
    names = ("checksum", "file_size_bytes", "parameters", "export_seconds", "export_peak_bytes")
    row = {name: known.get(name) for name in names}
    row["recipe_description"] = known.get("recipe") or next(
        (d.get("precision") for d in documents), None
    )
    row["output_snr_db"] = known.get("output_snr_db")
    return row


def _judged(quality: Mapping[str, Any] | None) -> Row:
    document = quality["document"] if quality else {}
    phases = document.get("phases") or {}
    row = {f"ppl_{phase}": phases.get(phase, {}).get("ppl") for phase in ("fp", "qdq", "device")}
    row["ppl_tokens"] = document.get("tokens")
    row["text_digest"] = document.get("text_digest")
    row["tasks"] = document.get("tasks") or None
    return row


def _joined(values: Iterable[Any]) -> Any:
    """The one that all have, or all of them as a text."""
    unique = list(dict.fromkeys(values))
    return unique[0] if len(unique) == 1 else ", ".join(map(str, unique)) or None


def _column(name: str, rows: list[Row]) -> list[Any]:
    """Its values, of one type: what several machines answered stands in a text."""
    values = [_flat(row[name]) if name in _DOCUMENTS else row[name] for row in rows]
    if any(isinstance(value, str) for value in values):
        return [value if value is None else str(value) for value in values]
    return values


def _flat(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value
