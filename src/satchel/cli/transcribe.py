"""satchel transcribe: what is said in recordings, as text or subtitles."""

from __future__ import annotations

import argparse
import signal
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satchel.cli.arguments import add_program_options, threads, wrong_usage
from satchel.cli.output import emit, emit_answer, print_json, say
from satchel.cli.piped_sound import NamedSound, kept_pipes
from satchel.cli.transcribe_options import add_search_options, search_choices
from satchel.errors import InputError, OutputExistsError, UsageError
from satchel.files import atomic_write, check_output
from satchel.progress import ProgressBar
from satchel.remarks import Remark
from satchel.speech.audio import open_sound
from satchel.speech.formats import FORMATS, clock, lines_of, written
from satchel.speech.result import Transcription

if TYPE_CHECKING:
    from satchel.speech.result import Segment
    from satchel.speech.transcriber import SegmentStream, Transcriber

HELP = "write down what is said in recordings"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="FILE", help="a program of Whisper's, or its checkpoint")
    parser.add_argument(
        "audio", metavar="AUDIO", nargs="*", help="WAV, FLAC, OGG, MP3, …; -: standard input"
    )
    parser.add_argument(
        "--format",
        "--output-format",
        choices=FORMATS,
        default="txt",
        dest="format",
        help="of what is written",
    )
    parser.add_argument(
        "-o",
        "--output",
        "--output-dir",
        metavar="FOLDER",
        dest="output",
        help="write AUDIO.FORMAT there, for each AUDIO",
    )
    parser.add_argument("--force", action="store_true", help="overwrite files that exist there")
    parser.add_argument(
        "--language", metavar="CODE", help="that is spoken: de, german (what it sounds like)"
    )
    parser.add_argument(
        "--task",
        choices=("transcribe", "translate"),
        default="transcribe",
        help="translate: into English",
    )
    parser.add_argument("--words", action="store_true", help="times of words too (json)")
    parser.add_argument(
        "--prompt",
        "--initial-prompt",
        metavar="TEXT",
        default="",
        dest="prompt",
        help="names and spellings to know",
    )
    parser.add_argument(
        "--no-condition", action="store_true", help="windows do not know the text before them"
    )
    add_search_options(parser)
    parser.add_argument(
        "--microphone", action="store_true", help="listen until Ctrl-C, in place of AUDIO"
    )
    parser.add_argument(
        "--device", metavar="NAME", help="which microphone, by name or number (the usual one)"
    )
    add_program_options(parser)


def execute(arguments: argparse.Namespace) -> int:
    from satchel.cli.programs import find_program, open_program, tell_emulated
    from satchel.speech.transcriber import SpeechOptions, Transcriber

    if bool(arguments.audio) == arguments.microphone:
        many = "there are two things" if arguments.audio else "there is nothing"
        raise UsageError(f"{many} to listen to", "Give AUDIO, or --microphone.")
    if arguments.microphone and (arguments.format != "txt" or arguments.output or arguments.json):
        raise UsageError("the microphone gives plain text", "Leave out --format, -o and --json.")
    if arguments.device is not None and not arguments.microphone:
        raise UsageError("--device names a microphone", "Give --microphone, or leave it out.")
    with wrong_usage():
        options = SpeechOptions(
            language=arguments.language,
            task=arguments.task,
            words=arguments.words,
            prompt=arguments.prompt,
            condition_on_previous=not arguments.no_condition,
            **search_choices(arguments),
        )
    with kept_pipes(arguments.audio) as sounds:
        _check_files(sounds, arguments)
        program = open_program(str(find_program(arguments.model)), arguments)
        transcriber = Transcriber(program, threads(arguments), options)
        tell_emulated(transcriber.model.instance.emulated)
        if arguments.microphone:
            _listen(transcriber, arguments)
            return 0
        return _files(transcriber, sounds, arguments)


def _files(
    transcriber: Transcriber, sounds: list[NamedSound], arguments: argparse.Namespace
) -> int:
    documents: list[dict[str, Any]] = []
    for sound in sounds:
        try:
            documents.append(_file(transcriber, sound, arguments))
        except InputError as error:  # the others are still heard
            if len(sounds) == 1:
                raise
            say(f"satchel: {error}")
            documents.append({"audio": sound.name, "error": str(error)})
        except Interrupted as stopped:
            if arguments.json:
                print_json({"transcriptions": [*documents, stopped.document]})
            raise
    if arguments.json:
        print_json({"transcriptions": documents})
    return int(any("error" in document for document in documents))


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, with what had been heard of the recording until then."""

    def __init__(self, document: dict[str, Any]) -> None:
        super().__init__()
        self.document = {**document, "unfinished": True}


def _target(arguments: argparse.Namespace, sound: NamedSound) -> Path:
    return Path(arguments.output) / f"{sound.stem}.{arguments.format}"


def _check_files(sounds: list[NamedSound], arguments: argparse.Namespace) -> None:
    """All that was named can be read and written: asked before the work, which may take hours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Remark)  # each is said when the recording's turn comes
        for sound in sounds:
            open_sound(sound.path, sound.shown)
    if not arguments.output:
        return
    folder = Path(arguments.output)
    if folder.exists() and not folder.is_dir():
        raise OutputExistsError(f"{folder} is not a folder", "Give another one with -o.")
    if not folder.exists():
        if folder.suffix.removeprefix(".").lower() in FORMATS:
            raise UsageError(
                f"-o names a folder, and {folder} looks like a file",
                f"--format {folder.suffix[1:].lower()} > {folder} writes one file.",
            )
        check_output(folder, overwrite=False)
        folder.mkdir()
    targets = [_target(arguments, sound) for sound in sounds]
    for target in targets:
        check_output(target, arguments.force)
        if targets.count(target) > 1:
            raise UsageError(f"two recordings would become {target}", "Transcribe them apart.")


def _file(
    transcriber: Transcriber, sound: NamedSound, arguments: argparse.Namespace
) -> dict[str, Any]:
    """One recording: segments are printed as they are heard, unless they go elsewhere."""
    bar = ProgressBar(lambda seconds: f"{seconds:.0f} s")
    stream = transcriber.stream(
        open_sound(sound.path, sound.shown),
        progress=lambda done, all: bar(f"{sound.stem}, seconds", int(done), int(all)),
    )
    kept: list[Segment] = []
    heard = _keeping(stream, kept)
    quiet = arguments.json or arguments.output or arguments.format == "json"
    if not quiet and len(arguments.audio) > 1:
        emit(f"{sound.name}:")
    try:
        for piece in lines_of(heard, "txt" if quiet else arguments.format):
            if not quiet:
                emit_answer(piece)
    except KeyboardInterrupt:
        stopped = Interrupted({"audio": sound.name, **_whole(stream, kept).to_dict()})
        if arguments.output and kept:
            _keep_unfinished(_whole(stream, kept), sound, arguments)
        elif arguments.format == "json" and not arguments.json:
            print_json({k: v for k, v in stopped.document.items() if k != "audio"})
        raise stopped from None
    bar.close()
    whole = _whole(stream, kept)
    if arguments.output:
        target = _target(arguments, sound)
        with atomic_write(target, arguments.force) as file:
            file.write(written(whole, arguments.format).encode())
        say(f"{target}")
    elif arguments.format == "json" and not arguments.json:
        emit(written(whole, "json"), end="")
    return {"audio": sound.name, **whole.to_dict()}


def _whole(stream: SegmentStream, kept: list[Segment]) -> Transcription:
    text = "".join(segment.text for segment in kept)
    return Transcription(text, stream.language, stream.seconds, kept)


def _keep_unfinished(
    heard: Transcription, sound: NamedSound, arguments: argparse.Namespace
) -> None:
    """What was heard before Ctrl-C, which may have taken hours."""
    target = _target(arguments, sound).with_suffix(f".unfinished.{arguments.format}")
    with atomic_write(target, overwrite=True) as file:
        file.write(written(heard, arguments.format).encode())
    say(f"{target} has the first {clock(heard.segments[-1].end)} of {clock(heard.seconds)}")


def _keeping(stream: SegmentStream, kept: list[Segment]) -> Iterator[Segment]:
    for segment in stream:
        kept.append(segment)
        yield segment


def _listen(transcriber: Transcriber, arguments: argparse.Namespace) -> None:
    """Ctrl-C ends the listening, and what was said until then is still written; two end all."""
    from satchel.speech.microphone import microphone_blocks, pieces

    ended = threading.Event()

    def end(_signal: int, _frame: object) -> None:
        ended.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, end)
    try:
        say("Listening; Ctrl-C ends it.")
        for piece in pieces(microphone_blocks(arguments.device, ended)):
            for line in lines_of(transcriber.stream(piece), "txt"):
                emit_answer(line)
    finally:
        signal.signal(signal.SIGINT, before)
