"""Whisper in Satchel beside whisper.cpp, faster-whisper (CTranslate2) and openai-whisper.

    pip install --no-deps --target PEERS openai-whisper more-itertools numba llvmlite \\
        faster-whisper ctranslate2 av pywhispercpp platformdirs
    python benchmarks/speech_side_by_side.py ggml-tiny.bin talk.wav --peers PEERS --rounds 5

All run the same weights, those of a ggml file, greedily at temperature 0, with the same number of
threads. Every measurement is a process of its own, and rounds go over all contenders in turn, so
that a slow minute of the machine hits all of them. The table has the medians: the encoder over one
window of 30 seconds, and the whole recording from samples to text.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPEATS = 3  # in each process, after one that warms it up


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    times = []
    result = work()
    for _ in range(REPEATS):
        start = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - start)
    return statistics.median(times), result


def sound(path: str) -> Any:
    import numpy as np

    from satchel.speech.audio import open_sound

    return np.concatenate(list(open_sound(path).blocks()))


def satchel(recipe: str) -> Callable[..., dict[str, Any]]:
    def run(work: Path, audio: str, threads: int) -> dict[str, Any]:
        from satchel import Transcriber
        from satchel.speech.audio import sound_of
        from satchel.speech.spectrogram import Spectrogram

        samples = sound(audio)
        transcriber = Transcriber(work / f"{recipe}.satchel", threads)
        model = transcriber.model
        window = Spectrogram(sound_of(samples), model.about.mels).beginning(model.frames)
        encoder, _ = timed(lambda: model.listen(window))
        options = {"language": "en", "temperatures": (0.0,)}
        whole, said = timed(lambda: transcriber.transcribe(samples, **options))
        return {"encoder": encoder, "whole": whole, "text": said.text}

    return run


def openai_whisper(work: Path, audio: str, threads: int) -> dict[str, Any]:
    import torch
    import whisper

    torch.set_num_threads(threads)
    samples = sound(audio)
    model = whisper.load_model(str(work / "model.pt"), device="cpu").float()
    mel = whisper.log_mel_spectrogram(whisper.pad_or_trim(samples))
    with torch.inference_mode():
        encoder, _ = timed(lambda: model.encoder(mel[None]))
    options = {"language": "en", "temperature": 0.0, "fp16": False}
    whole, said = timed(lambda: model.transcribe(samples, **options))
    return {"encoder": encoder, "whole": whole, "text": said["text"]}


def faster_whisper(compute: str) -> Callable[..., dict[str, Any]]:
    def run(work: Path, audio: str, threads: int) -> dict[str, Any]:
        from faster_whisper import WhisperModel
        from faster_whisper.audio import pad_or_trim

        samples = sound(audio)
        model = WhisperModel(
            str(work / "ct2"), device="cpu", compute_type=compute, cpu_threads=threads
        )
        features = pad_or_trim(model.feature_extractor(samples))
        encoder, _ = timed(lambda: model.encode(features))
        options = {"language": "en", "beam_size": 1, "temperature": 0.0}

        def transcribe() -> str:
            segments, _ = model.transcribe(samples, **options)
            return "".join(segment.text for segment in segments)

        whole, text = timed(transcribe)
        return {"encoder": encoder, "whole": whole, "text": text}

    return run


def whisper_cpp(work: Path, audio: str, threads: int) -> dict[str, Any]:
    import _pywhispercpp as native
    from pywhispercpp.model import Model

    samples = sound(audio)
    model = Model(
        str(work / "model.bin"),
        n_threads=threads,
        language="en",
        temperature_inc=0.0,
        print_progress=False,
        print_realtime=False,
        redirect_whispercpp_logs_to=None,
    )
    context = model._ctx
    native.whisper_pcm_to_mel(context, samples, len(samples), threads)
    encoder, _ = timed(lambda: native.whisper_encode(context, 0, threads))
    whole, said = timed(lambda: model.transcribe(samples))
    return {"encoder": encoder, "whole": whole, "text": " ".join(s.text for s in said)}


CONTENDERS: dict[str, Callable[..., dict[str, Any]]] = {
    "Satchel fp32": satchel("fp32"),
    "Satchel 8a8w": satchel("8a8w"),
    "Satchel 8da4w": satchel("8da4w"),
    "whisper.cpp f16": whisper_cpp,
    "faster-whisper float32": faster_whisper("float32"),
    "faster-whisper int8": faster_whisper("int8"),
    "openai-whisper float32": openai_whisper,
}
FILES = {
    "Satchel fp32": "fp32.satchel",
    "Satchel 8a8w": "8a8w.satchel",
    "Satchel 8da4w": "8da4w.satchel",
    "whisper.cpp f16": "model.bin",
    "faster-whisper float32": "ct2",
    "faster-whisper int8": "ct2",
    "openai-whisper float32": "model.pt",
}


def prepare(model: Path, work: Path) -> dict[str, float]:
    """The model in everybody's form; seconds that Satchel's exports took."""
    import satchel as package

    work.mkdir(parents=True, exist_ok=True)
    took = {}
    for recipe in ("fp32", "8a8w", "8da4w"):
        start = time.perf_counter()
        target = work / f"{recipe}.satchel"
        package.export(model, target, recipe=recipe, overwrite=True)
        took[f"Satchel {recipe}"] = time.perf_counter() - start
    link = work / "model.bin"
    link.unlink(missing_ok=True)
    link.symlink_to(model.resolve())
    if not (work / "ct2" / "model.bin").exists():
        _write_others(model, work)
    return took


def _write_others(model: Path, work: Path) -> None:
    """A folder of Hugging Face's, which CTranslate2 converts, and a file of openai-whisper's."""
    import torch
    from ctranslate2.converters import TransformersConverter
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    from satchel.checkpoints import open_checkpoint
    from satchel.llm.tokenizer import read_tokenizer

    checkpoint = open_checkpoint(model)
    state = {name: torch.from_numpy(checkpoint.read(name)) for name in checkpoint.tensors}
    config = WhisperConfig(**{k: v for k, v in checkpoint.config.items() if k != "model_type"})
    config.encoder_ffn_dim = config.decoder_ffn_dim = 4 * config.d_model
    theirs = WhisperForConditionalGeneration(config)
    theirs.load_state_dict({**state, "proj_out.weight": state["model.decoder.embed_tokens.weight"]})
    folder = work / "huggingface"
    theirs.save_pretrained(folder)
    assert checkpoint.tokenizer is not None
    (folder / "tokenizer.json").write_text(read_tokenizer(checkpoint.tokenizer).json)
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    extractor = {
        "feature_size": config.num_mel_bins,
        "feature_extractor_type": "WhisperFeatureExtractor",
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(extractor))
    converter = TransformersConverter(
        str(folder), copy_files=["tokenizer.json", "preprocessor_config.json"]
    )
    converter.convert(str(work / "ct2"), force=True)
    _write_pt(checkpoint.config, state, work / "model.pt")


def _write_pt(config: dict[str, Any], state: dict[str, Any], path: Path) -> None:
    import torch
    import whisper

    from satchel.checkpoints.whisper_names import huggingface_name

    c = config
    dims = whisper.model.ModelDimensions(
        c["num_mel_bins"],
        c["max_source_positions"],
        c["d_model"],
        c["encoder_attention_heads"],
        c["encoder_layers"],
        c["vocab_size"],
        c["max_target_positions"],
        c["d_model"],
        c["decoder_attention_heads"],
        c["decoder_layers"],
    )
    names = whisper.model.Whisper(dims).state_dict()
    tensors = {name: state[huggingface_name(name)] for name in names if name != "alignment_heads"}
    torch.save({"dims": vars(dims), "model_state_dict": tensors}, path)


def size(path: Path) -> int:
    path = path.resolve()
    return path.stat().st_size if path.is_file() else sum(size(p) for p in path.iterdir())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", type=Path, help="a ggml file of Whisper's")
    parser.add_argument("audio", help="a recording in English")
    parser.add_argument("--peers", help="where the others are installed (pip --target)")
    parser.add_argument("--work", type=Path, default=Path("speech-side-by-side"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=list(CONTENDERS))
    parser.add_argument("--one", choices=list(CONTENDERS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peers:
        sys.path.insert(0, arguments.peers)
    if arguments.one:
        found = CONTENDERS[arguments.one](arguments.work, arguments.audio, arguments.threads)
        print(json.dumps(found))
        return
    took = prepare(arguments.model, arguments.work)
    names = arguments.only or list(CONTENDERS)
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads)}
    for _ in range(arguments.rounds):
        for name in names:
            command = [sys.executable, *sys.argv, "--one", name]
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False
            )
            if done.returncode:
                print(f"{name} failed: {done.stderr[-2000:]}", file=sys.stderr)
                continue
            results[name].append(json.loads(done.stdout.splitlines()[-1]))
            print(f"{name}: {results[name][-1]}", file=sys.stderr)
    print("| | encoder, ms | whole file, ms | MB | export, s |\n|---|---|---|---|---|")
    for name, found in results.items():
        if not found:
            continue
        encoder, whole = (
            1000 * statistics.median(one[what] for one in found) for what in ("encoder", "whole")
        )
        megabytes = size(arguments.work / FILES[name]) / 1e6
        exported = f"{took[name]:.1f}" if name in took else ""
        print(f"| {name} | {encoder:.0f} | {whole:.0f} | {megabytes:.0f} | {exported} |")
    texts = {name: found[-1]["text"].strip() for name, found in results.items() if found}
    for text in dict.fromkeys(texts.values()):
        print(f"\n{', '.join(n for n in texts if texts[n] == text)}: {text}")


if __name__ == "__main__":
    main()
