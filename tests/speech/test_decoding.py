"""Which tokens are chosen, against transformers' rules and model; segments, words, formats."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers.generation.logits_process import WhisperTimeStampLogitsProcessor

from satchel.runtime.program import Program
from satchel.speech.decoding import Heard, Search, decode_window
from satchel.speech.formats import clock, lines_of
from satchel.speech.model import SpeechModel
from satchel.speech.result import Segment
from satchel.speech.rules import Rules
from satchel.speech.tokens import Tokens
from satchel.speech.transcriber import Move, divide
from satchel.speech.words import Timing, add_words, cheapest_path, join_marks, listening
from speech.test_whisper_graphs import mel_of
from support.tiny_whisper import export_tiny

TOKENS = Tokens.of_vocabulary(51865)
FIRST = TOKENS.first_timestamp


def their_rules(begin: int) -> WhisperTimeStampLogitsProcessor:
    config = SimpleNamespace(
        no_timestamps_token_id=TOKENS.no_timestamps,
        eos_token_id=TOKENS.end,
        bos_token_id=TOKENS.end,
        max_initial_timestamp_index=50,
    )
    return WhisperTimeStampLogitsProcessor(config, begin_index=begin)


@pytest.mark.parametrize(
    "text",
    [
        [],
        [FIRST],
        [FIRST, 400],
        [FIRST, 400, 500],
        [FIRST, 400, FIRST + 30],
        [FIRST, 400, FIRST + 30, FIRST + 30],
        [FIRST + 10, 7, 8, FIRST + 30, FIRST + 41, 9],
        [FIRST + 10, 7, FIRST + 700, FIRST + 701],
    ],
)
@pytest.mark.parametrize("louder", [0.0, 6.0])
def test_rules_of_timestamps_are_transformers(text: list[int], louder: float) -> None:
    begin = [TOKENS.start, TOKENS.language("de"), TOKENS.transcribe]
    logits = np.random.default_rng(len(text)).normal(0, 2, (1, 51865)).astype(np.float32)
    logits[:, FIRST:] += louder
    ids = torch.tensor([[*begin, *text]])
    wanted = their_rules(len(begin))(ids, torch.from_numpy(logits.copy())).numpy()
    Rules(TOKENS, (), ()).apply(logits, [text])
    np.testing.assert_array_equal(np.isneginf(logits), np.isneginf(wanted))


def their_text(model: Any, mel: np.ndarray, prompt: list[int], rules: Rules) -> list[int]:
    """The greedy text, from transformers' model and rules."""
    text: list[int] = []
    process = their_rules(len(prompt))
    with torch.no_grad():
        seen = model.model.encoder(torch.from_numpy(mel.T.copy())[None])
        while len(text) < model.config.max_target_positions // 2:
            ids = torch.tensor([[*prompt, *text]])
            row = model(encoder_outputs=seen, decoder_input_ids=ids).logits[:, -1]
            row[:, list(rules.unspoken)] = -torch.inf
            if not text:
                row[:, list(rules.blank)] = -torch.inf
            token = int(process(ids, row).argmax())
            if token == TOKENS.end:
                break
            text.append(token)
    return text


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, SpeechModel]:
    model, path = export_tiny(tmp_path_factory.mktemp("speech"))
    return model, SpeechModel(Program(path), 1)


def test_greedy_text_is_transformers(tiny: tuple[Any, SpeechModel]) -> None:
    theirs, model = tiny
    vocabulary = model.vocabulary
    rules = Rules(TOKENS, vocabulary.unspoken, vocabulary.blank)
    begin = [TOKENS.start, TOKENS.language("de"), TOKENS.transcribe]
    for seed, before in ((3, []), (4, [TOKENS.start_of_previous, 400, 401, 402])):
        mel = mel_of(theirs, seed)
        model.listen(mel)
        prompt = [*before, *begin]
        rng = np.random.default_rng(0)
        heard = decode_window(model, prompt, len(before), rules, Search(), rng)
        assert list(heard.tokens) == their_text(theirs, mel, prompt, rules)
        # As likely as the model itself says, and none of the caches stays.
        assert heard.mean_log_probability < 0 and 0 < heard.no_speech < 1
        assert model.instance.cache_usage.pages <= 1


def test_beams_find_what_looking_at_everything_finds(tiny: tuple[Any, SpeechModel]) -> None:
    """Beam search over whole prefixes, each computed anew."""
    theirs, model = tiny
    rules = Rules(TOKENS, model.vocabulary.unspoken, model.vocabulary.blank)
    prompt = [TOKENS.start, TOKENS.language("de"), TOKENS.transcribe]
    mel = mel_of(theirs, 5)
    model.listen(mel)
    search = Search(beams=3)
    heard = decode_window(model, prompt, 0, rules, search, np.random.default_rng(0))
    with torch.no_grad():
        seen = theirs.model.encoder(torch.from_numpy(mel.T.copy())[None])
    beams: list[tuple[list[int], float]] = [([], 0.0)]
    done: list[tuple[list[int], float]] = []
    for _ in range(theirs.config.max_target_positions // 2):
        following = []
        for text, score in beams:
            ids = torch.tensor([[*prompt, *text]])
            with torch.no_grad():
                row = theirs(encoder_outputs=seen, decoder_input_ids=ids).logits[:, -1].numpy()
            rules.apply(row, [text])
            likely = torch.log_softmax(torch.from_numpy(row[0]), 0)
            for value, token in zip(*likely.topk(4), strict=True):
                following.append(([*text, int(token)], score + float(value)))
        following.sort(key=lambda one: -one[1])
        beams = []
        for text, score in following:
            (done if text[-1] == TOKENS.end else beams).append((text, score))
            if len(beams) == 3:
                break
        if len(done) >= 3:
            break
    best = sorted(beams, key=lambda one: -one[1])
    done = done[:3] + [([*text, TOKENS.end], s) for text, s in best[: max(0, 3 - len(done))]]
    text, score = max(done, key=lambda one: one[1] / max(1, len(one[0]) - 1))
    assert list(heard.tokens) == text[:-1]
    assert heard.mean_log_probability == pytest.approx(score / len(text), abs=1e-4)


def test_samples_are_chosen_by_their_temperature(tiny: tuple[Any, SpeechModel]) -> None:
    theirs, model = tiny
    rules = Rules(TOKENS, model.vocabulary.unspoken, model.vocabulary.blank)
    model.listen(mel_of(theirs))
    prompt = [TOKENS.start, TOKENS.language("de"), TOKENS.transcribe]

    def text(temperature: float, seed: int) -> tuple[int, ...]:
        search = Search(temperature, samples=2)
        rng = np.random.default_rng(seed)
        return decode_window(model, prompt, 0, rules, search, rng).tokens

    assert text(1.0, 0) == text(1.0, 0) != text(1.0, 1)
    assert text(1e-4, 0) == text(0.0, 0)


def test_languages_are_the_models(tiny: tuple[Any, SpeechModel]) -> None:
    theirs, model = tiny
    mel = mel_of(theirs)
    model.listen(mel)
    with torch.no_grad():
        given = torch.from_numpy(mel.T.copy())[None]
        row = theirs(given, decoder_input_ids=torch.tensor([[TOKENS.start]])).logits[0, 0]
    wanted = row[TOKENS.start + 1 : TOKENS.start + 100].softmax(0)
    found = model.languages()
    np.testing.assert_allclose(list(found.values()), wanted.numpy(), atol=1e-5)
    assert list(found)[:3] == ["en", "zh", "de"]


def heard(*tokens: int) -> Heard:
    return Heard(tokens, "", -0.1, 0.0, 0.0)


def test_segments_between_timestamps() -> None:
    a, b, c = FIRST + 50, FIRST + 100, FIRST + 150
    segments, move = divide(heard(FIRST, 1, a, a, 2, b, b), FIRST, 10.0, 3000)
    assert [(s.start, s.end) for s in segments] == [(10.0, 11.0), (11.0, 12.0)]
    assert move == Move(200, True)
    # Nothing is said behind a last timestamp: the window is done.
    segments, move = divide(heard(FIRST, 1, a, a, 2, c), FIRST, 0.0, 3000)
    assert [s.tokens for s in segments] == [[FIRST, 1, a], [a, 2, c]]
    assert move == Move(3000, False)
    segments, move = divide(heard(FIRST, 1, 2), FIRST, 0.0, 1500)
    assert (segments[0].end, move) == (15.0, Move(1500, True))
    segments, move = divide(heard(FIRST, 1, c), FIRST, 0.0, 1500)
    assert (segments[0].end, move) == (3.0, Move(1500, False))


def test_text_that_repeats_itself_can_be_written_shorter() -> None:
    assert Heard((), "and so on " * 40, 0, 0, 0).compression > 2.4
    assert Heard((), "Ask not what your country can do for you.", 0, 0, 0).compression < 1.2


def brute_force(cost: np.ndarray) -> float:
    total = np.full((cost.shape[0] + 1, cost.shape[1] + 1), np.inf)
    total[0, 0] = 0
    for i in range(cost.shape[0]):
        for j in range(cost.shape[1]):
            total[i + 1, j + 1] = cost[i, j] + min(total[i, j], total[i, j + 1], total[i + 1, j])
    return float(total[-1, -1])


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (7, 3), (12, 40)])
def test_the_cheapest_path(shape: tuple[int, int]) -> None:
    cost = np.random.default_rng(1).normal(size=shape)
    rows, columns = cheapest_path(cost)
    assert (rows[0], columns[0], rows[-1] + 1, columns[-1] + 1) == (0, 0, *shape)
    steps = np.stack([np.diff(rows), np.diff(columns)])
    assert steps.min(initial=0) >= 0 and steps.max(initial=1) <= 1
    assert steps.sum(axis=0).min(initial=1) >= 1
    assert cost[rows, columns].sum() == pytest.approx(brute_force(cost))


def test_listening_follows_a_diagonal() -> None:
    at = np.arange(8)[:, None] * 10
    scores = -((np.arange(100)[None, :] - at - 5.0) ** 2) / 20
    rows, columns = cheapest_path(-listening(np.stack([scores, 0.5 * scores]).astype(np.float32)))
    first = [int(columns[rows == token][0]) for token in range(8)]
    assert np.abs(np.diff(first) - 10).max() <= 2


def test_marks_belong_to_words() -> None:
    timings = [Timing(t, [n], n, n + 1, 1.0) for n, t in enumerate([' "', "Well", ",", " no", "."])]
    join_marks(timings)
    assert [(t.text, t.tokens) for t in timings if t.text] == [
        (' "Well,', [0, 1, 2]),
        (" no.", [3, 4]),
    ]


def test_words_are_whole_characters(tiny: tuple[Any, SpeechModel]) -> None:
    vocabulary = tiny[1].vocabulary
    text = " straße, 東京!"
    tokens = vocabulary.encode(text)
    assert vocabulary.text(tokens) == text
    words = vocabulary.words([*tokens, TOKENS.end], "de")
    assert "".join(word for word, _ in words[:-1]) == text
    assert [t for _, part in words for t in part] == [*tokens, TOKENS.end]
    assert words[-1] == ("<|endoftext|>", [TOKENS.end])


def test_words_have_times(tiny: tuple[Any, SpeechModel]) -> None:
    theirs, model = tiny
    model.listen(mel_of(theirs))
    texts = [" one two,", " three four."]
    segments = [
        Segment(
            10.0 + n, 11.0 + n, text, [FIRST, *model.vocabulary.encode(text), FIRST], 0, 0, 0, 0
        )
        for n, text in enumerate(texts)
    ]
    begin = [TOKENS.start, TOKENS.language("en"), TOKENS.transcribe]
    end = add_words(model, segments, begin, "en", 10.0, 150, 9.0)
    assert [[w.text for w in s.words] for s in segments] == [
        [" one", " two,"],
        [" three", " four."],
    ]
    words = [word for segment in segments for word in segment.words]
    assert end == segments[-1].end
    assert all(0 <= w.probability < 1 and w.start <= w.end <= 12.0 for w in words)
    # Of a window's 150 frames nothing behind them is listened to.
    scores, _ = model.align([*begin, 400, TOKENS.end])
    assert scores.shape[1:] == (5, 100)


def test_formats() -> None:
    segments = [
        Segment(0.0, 1.5, " One --> two.", [], 0, 0, 0, 0),
        Segment(3599.999, 3661.25, " Three.", [], 0, 0, 0, 0),
    ]
    assert "".join(lines_of(segments, "txt")) == "One --> two.\nThree.\n"
    assert "".join(lines_of(segments, "srt")) == (
        "1\n00:00:00,000 --> 00:00:01,500\nOne -> two.\n\n"
        "2\n00:59:59,999 --> 01:01:01,250\nThree.\n\n"
    )
    assert "".join(lines_of(segments, "vtt")).startswith(
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nOne -> two.\n\n00:59:59.999"
    )
    assert clock(36000) == "10:00:00.000"
