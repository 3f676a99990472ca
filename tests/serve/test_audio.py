"""Speech to text through OpenAI's client, and the page's microphone."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import soundfile

import satchel
from satchel.serve import App, Settings
from satchel.speech.transcriber import SegmentStream
from serve.conftest import Running, serving
from speech.test_sound import voice
from support.tiny_whisper import export_tiny

ANYTHING = satchel.SpeechOptions(
    log_probability_limit=None, compression_limit=None, no_speech_limit=None
)


@pytest.fixture(scope="module")
def hearing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    _, program = export_tiny(tmp_path_factory.mktemp("hearing"))
    transcriber = satchel.Transcriber(program, 1, ANYTHING)
    with serving(App({}, Settings(), {"ears": transcriber})) as running:
        yield running


def recording(seconds: float = 3) -> io.BytesIO:
    file = io.BytesIO()
    soundfile.write(file, voice(seconds), 16000, format="WAV")
    file.name = "speech.wav"
    file.seek(0)
    return file


def test_transcriptions_and_translations(hearing: Running) -> None:
    audio = hearing.client.audio
    said = audio.transcriptions.create(model="ears", file=recording(), temperature=1.0)
    assert isinstance(said.text, str)
    whole: Any = audio.transcriptions.create(
        model="whisper-1",
        file=recording(),
        response_format="verbose_json",
        language="de",
        timestamp_granularities=["word", "segment"],
    )
    assert (whole.language, whole.task, whole.duration) == ("german", "transcribe", 3.0)
    assert whole.segments is not None and isinstance(whole.words, list)
    vtt: Any = audio.transcriptions.create(model="ears", file=recording(), response_format="vtt")
    assert vtt.startswith("WEBVTT")
    told: Any = audio.translations.create(
        model="ears", file=recording(), response_format="verbose_json"
    )
    assert (told.task, told.language) == ("translate", "english")
    assert [m.id for m in hearing.client.models.list()] == ["ears"]
    assert hearing.client.models.retrieve("ears").meta["speech"] is True


def test_a_stream_tells_segments_as_they_are_heard(hearing: Running) -> None:
    audio: Any = hearing.client.audio.transcriptions
    whole = audio.create(model="ears", file=recording(40), response_format="verbose_json")
    assert len(whole.segments) > 1
    seeks = [segment.seek for segment in whole.segments]
    assert seeks[0] == 0 and seeks == sorted(seeks)
    assert all(segment.seek / 100 <= segment.start for segment in whole.segments)
    *deltas, done = audio.create(model="ears", file=recording(40), stream=True)
    assert [event.type for event in deltas] == ["transcript.text.delta"] * len(whole.segments)
    assert [event.delta for event in deltas] == [segment.text for segment in whole.segments]
    assert (done.type, done.text) == ("transcript.text.done", whole.text)
    with pytest.raises(openai.BadRequestError, match="not sound that can be read"):
        audio.create(model="ears", file=io.BytesIO(b"not a sound"), stream=True)
    with pytest.raises(openai.BadRequestError, match="a stream has no response_format but json"):
        audio.create(model="ears", file=recording(), response_format="srt", stream=True)


def test_a_client_that_leaves_a_stream_holds_nobody_up(
    hearing: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows: list[float] = []

    def count(stream: SegmentStream, frame: int) -> None:
        windows.append(stream.seconds)
        told(stream, frame)

    told = SegmentStream._tell
    monkeypatch.setattr(SegmentStream, "_tell", count)
    audio: Any = hearing.client.audio.transcriptions
    stream = audio.create(model="ears", file=recording(300), stream=True)
    assert next(iter(stream)).type == "transcript.text.delta"
    stream.close()
    assert isinstance(audio.create(model="ears", file=recording()).text, str)
    assert windows[-1] == 3.0 and windows.count(300.0) < 10  # and not all of them


def test_what_is_wrong_is_told(hearing: Running) -> None:
    audio = hearing.client.audio
    with pytest.raises(openai.NotFoundError, match="no model 'eyes' that hears"):
        audio.transcriptions.create(model="eyes", file=recording())
    with pytest.raises(openai.BadRequestError, match="not sound that can be read") as told:
        audio.transcriptions.create(model="ears", file=io.BytesIO(b"not a sound"))
    assert "BytesIO" not in told.value.message
    with pytest.raises(openai.BadRequestError, match="no language 'klingon'"):
        audio.transcriptions.create(model="ears", file=recording(), language="klingon")
    with pytest.raises(openai.BadRequestError, match="response_format is one of"):
        audio.transcriptions.create(model="ears", file=recording(), response_format="mp3")  # type: ignore[call-overload]
    with pytest.raises(openai.NotFoundError, match="no model that writes"):
        hearing.client.chat.completions.create(model="ears", messages=[])
    place = f"{hearing.url}/v1/audio/transcriptions"
    assert "multipart/form-data" in httpx.post(place, json={}).json()["error"]["message"]
    assert httpx.post(place, files={"other": b"x"}).json()["error"]["param"] == "file"
    large = httpx.post(place, files={"file": b"x" * (33 << 20)})
    assert large.status_code == 413


def test_what_is_damaged_is_told_with_the_text(hearing: Running) -> None:
    cut = recording().getvalue()[:50_000]
    audio: Any = hearing.client.audio.transcriptions
    for format in ("json", "verbose_json"):
        said = audio.create(model="ears", file=cut, response_format=format)
        assert said.remarks == ["the file is cut off: 52% of it is there, and is transcribed."]
    *_, done = audio.create(model="ears", file=cut, stream=True)
    assert len(done.remarks) == 1
    assert not hasattr(audio.create(model="ears", file=recording()), "remarks")


def test_forms_as_other_clients_write_them(hearing: Running) -> None:
    """.NET's writes names without quotation marks."""
    parts = [b"Content-Disposition: form-data; name=model\r\n\r\nears"]
    parts += [b"Content-Disposition: form-data; name=response_format\r\n\r\nvtt"]
    named = b"form-data; name=file; filename=a.wav; filename*=utf-8''a.wav"
    parts += [b"Content-Disposition: " + named + b"\r\n\r\n" + recording().getvalue()]
    body = b"".join(b"--b\r\n" + part + b"\r\n" for part in parts) + b"--b--\r\n"
    kind = {"content-type": 'multipart/form-data; boundary="b"'}
    place = f"{hearing.url}/v1/audio/transcriptions"
    assert httpx.post(place, content=body, headers=kind, timeout=60).text.startswith("WEBVTT")
    audio: Any = hearing.client.audio.transcriptions
    for wanted, format in (("char", "verbose_json"), ("word", "json")):
        with pytest.raises(openai.BadRequestError) as told:
            audio.create(
                model="ears",
                file=recording(),
                response_format=format,
                timestamp_granularities=[wanted],
            )
        assert told.value.param == "timestamp_granularities"


def test_servers_without_ears_say_so(server: Running) -> None:
    with pytest.raises(openai.NotFoundError, match="no model that hears"):
        server.client.audio.transcriptions.create(model="x", file=recording())


def test_the_page_has_a_microphone(program: Path, hearing: Running, tmp_path: Path) -> None:
    sync_api = pytest.importorskip("playwright.sync_api")
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if chromium is None:
        pytest.skip("there is no chromium")
    soundfile.write(tmp_path / "spoken.wav", voice(4), 48000)
    fake = ["--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"]
    fake.append(f"--use-file-for-fake-audio-capture={tmp_path / 'spoken.wav'}")
    app = App({"tiny": program}, Settings(), hearing.app.audio.models)
    with serving(app) as running, sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", *fake])
        page = browser.new_context(permissions=["microphone"]).new_page()
        page.goto(running.url)
        button = page.get_by_role("button", name="Speak")
        button.click()
        page.get_by_role("button", name="Stop listening").wait_for()
        page.wait_for_timeout(700)
        with page.expect_response(re.compile("audio/transcriptions")) as told:
            page.get_by_role("button", name="Stop listening").click()
        said = told.value.json()["text"]
        page.get_by_role("button", name="Speak").wait_for()
        assert page.locator("#text").input_value() == said.strip()
        browser.close()
