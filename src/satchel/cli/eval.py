"""satchel eval: what quantisation cost."""

from __future__ import annotations

import argparse
from typing import Any

from satchel.cli.arguments import add_program_options, positive, threads
from satchel.cli.output import emit, print_json, say, table, whole
from satchel.errors import UsageError
from satchel.progress import ProgressBar

_TEXTS = ("text", "hellaswag", "tasks")
HELP = "measure perplexity on a text and accuracy on tasks, in float, quantised and as it runs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="FILE", help="a program, or a model to make one of")
    what = parser.add_argument_group("what to evaluate on; at least one")
    what.add_argument("--text", metavar="FILE", help="perplexity on this UTF-8 text")
    what.add_argument(
        "--hellaswag",
        metavar="FILE",
        help="HellaSwag from a text file, six lines an item; needs no lm-eval",
    )
    what.add_argument(
        "--tasks",
        "--task",
        type=_names,
        default=(),
        metavar="NAME,…",
        help="tasks of lm-eval: pip install 'satchel[eval]'",
    )
    what.add_argument(
        "--task-data",
        type=_task_and_file,
        action="append",
        default=[],
        metavar="TASK=FILE",
        help="a task's rows from a .jsonl, .json, .csv or .parquet file; repeatable",
    )
    what.add_argument(
        "--speech",
        metavar="FOLDER",
        help="word and character error rates of a model that hears, on NAME.wav with NAME.txt",
    )
    what.add_argument(
        "--vqa",
        metavar="FILE",
        help="exact answers of a vision-language model; on each line a JSON object with image, "
        "question and answer (or answers)",
    )
    what.add_argument("--task-path", metavar="FOLDER", help="tasks of your own, as lm-eval's YAML")
    what.add_argument(
        "--download", action="store_true", help="fetch the data of tasks that are not cached"
    )
    how = parser.add_argument_group("how to evaluate")
    how.add_argument(
        "--phases",
        type=_names,
        default=("device",),
        metavar="NAME,…",
        help="fp: in float; qdq: weights and activations rounded, in the reference (slow); "
        "device: what really runs",
    )
    how.add_argument(
        "--checkpoint",
        metavar="SOURCE",
        help="what the program was made of, for fp; default: the cache's, if it is there",
    )
    how.add_argument(
        "--limit", type=positive, metavar="N", help="the first N tokens, or items of a task"
    )
    how.add_argument(
        "--window", type=positive, default=2048, metavar="N", help="tokens read at a time"
    )
    how.add_argument(
        "--stride",
        type=positive,
        metavar="N",
        help="a new window every N tokens, each token counted once; default: the window",
    )
    how.add_argument("--language", metavar="CODE", help="that is spoken, for --speech (any)")
    how.add_argument(
        "--restart", action="store_true", help="do not go on from an earlier run of the same"
    )
    add_program_options(parser)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _task_and_file(text: str) -> tuple[str, str]:
    name, equals, file = text.partition("=")
    if not (name and equals and file):
        raise argparse.ArgumentTypeError(f"{text!r} is not TASK=FILE")
    return name, file


def execute(arguments: argparse.Namespace) -> None:
    from pathlib import Path

    from satchel.cli.programs import find_program, open_program
    from satchel.eval import EvaluationOptions, evaluate
    from satchel.exporter.cached import is_program

    _check_one_kind(arguments)
    if arguments.speech:
        _speech(arguments)
        return
    if arguments.vqa:
        _vqa(arguments)
        return
    checkpoint = arguments.checkpoint
    if checkpoint is None and not is_program(Path(arguments.model)):
        checkpoint = arguments.model  # the program is made of it
    options = EvaluationOptions(
        text=arguments.text,
        hellaswag=arguments.hellaswag,
        tasks=arguments.tasks,
        task_path=arguments.task_path,
        task_data=dict(arguments.task_data),
        download=arguments.download,
        limit=arguments.limit,
        window=arguments.window,
        stride=arguments.stride,
        phases=arguments.phases,
        checkpoint=checkpoint,
        threads=threads(arguments),
        restart=arguments.restart,
    )
    program = open_program(str(find_program(arguments.model)), arguments)
    bars = ProgressBar(), ProgressBar(whole)
    try:
        document = evaluate(program, options, *bars, say)
    except KeyboardInterrupt:
        say("\nWhat was measured is kept: the same command goes on from there.")
        raise
    finally:
        for bar in bars:
            bar.close()
    if arguments.json:
        print_json(document)
    else:
        _print(document)


def _check_one_kind(arguments: argparse.Namespace) -> None:
    """Recordings and images are measured by themselves; nothing that was asked for is left out."""
    asked = {f"--{name}": getattr(arguments, name) for name in ("speech", "vqa", *_TEXTS)}
    given = [flag for flag, value in asked.items() if value]
    alone = arguments.speech or arguments.vqa
    if alone and len(given) > 1:
        raise UsageError(f"{' and '.join(given)} are not measured together", "Give them apart.")
    if alone and arguments.phases != ("device",):
        raise UsageError(f"{given[0]} has no --phases: the program runs as it is", "Leave it out.")
    if arguments.language and not arguments.speech:
        raise UsageError("--language is for --speech", "Leave it out.")


def _speech(arguments: argparse.Namespace) -> None:
    from pathlib import Path

    from satchel.cli.programs import find_program, open_program
    from satchel.eval.speech import evaluate_speech
    from satchel.speech.transcriber import SpeechOptions

    bar = ProgressBar(whole)
    document = evaluate_speech(
        open_program(str(find_program(arguments.model)), arguments),
        Path(arguments.speech),
        SpeechOptions(language=arguments.language),
        limit=arguments.limit,
        threads=threads(arguments),
        progress=bar,
    )
    bar.close()
    if arguments.json:
        print_json(document)
        return
    emit(f"{document['program']}  {document['recipe']}")
    rows = [
        [f"{one['word_edits'] / max(1, one['words']):.1%}", str(one["words"]), one["audio"]]
        for one in document["files"]
    ]
    emit(table(rows, ["errors", "words", "recording"]))
    emit(
        f"word error rate {document['wer']:.2%}, character error rate {document['cer']:.2%}, "
        f"{document['words']} words; {document['audio_seconds']:.0f} s of sound in "
        f"{document['seconds']:.1f} s"
    )


def _vqa(arguments: argparse.Namespace) -> None:
    from pathlib import Path

    from satchel.cli.programs import open_llm
    from satchel.eval.vqa import evaluate_vqa

    bar = ProgressBar(whole)
    document = evaluate_vqa(
        open_llm(arguments), Path(arguments.vqa), limit=arguments.limit, progress=bar
    )
    bar.close()
    if arguments.json:
        print_json(document)
        return
    emit(f"{document['program']}  {document['recipe']}")
    emit(
        f"{document['right']} of {document['questions']} answers are right "
        f"({document['exact_match']:.1%}), in {document['seconds']:.1f} s"
    )


def _print(document: dict[str, Any]) -> None:
    emit(f"{document['program']}  {document['recipe']}")
    emit(f"checksum {document['checksum']}")
    phases = document["phases"]
    if phases:
        stride = f", one every {document['stride']:,}" if document["stride"] else ""
        emit(
            f"\nperplexity on {document['text']}, {document['tokens']:,} tokens "
            f"in windows of {document['window']:,}{stride}"
        )
        plain = phases.get("fp")
        rows = [
            [
                phase,
                f"{found['ppl']:.4f}",
                "" if plain is None else f"{found['ppl'] - plain['ppl']:+.4f}",
                f"{found['nll']:.6f}",
                f"{found['seconds']:.1f}",
            ]
            for phase, found in phases.items()
        ]
        emit(table(rows, ["phase", "perplexity", "over fp", "nll", "seconds"]))
        chance = document["device_over_qdq"]
        if chance and chance["stderr"] is not None:
            emit(
                f"device is {chance['difference']:+.2%} from qdq, of which about "
                f"{chance['stderr']:.2%} is chance: they round apart where a number lies "
                "between two codes"
            )
        if any(found["resumed_windows"] for found in phases.values()):
            emit("(went on from an earlier run; --restart starts over)")
    for task, by_phase in document["tasks"].items():
        metrics = [m for m in next(iter(by_phase.values())) if not m.endswith("stderr")]
        emit(f"\n{task}")
        rows = [
            [phase, *(_number(found.get(metric)) for metric in metrics)]
            for phase, found in by_phase.items()
        ]
        emit(table(rows, ["phase", *metrics]))


def _number(value: Any) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4f}" if value is not None else ""
