"""Pulling from the Hugging Face Hub, with its downloader replaced."""

from __future__ import annotations

import fnmatch
import sys
from pathlib import Path
from typing import Any

import pytest

from satchel.checkpoints.tokenizer_files import llama2c_tokenizer
from satchel.errors import DownloadError
from satchel.sources import pull
from satchel.sources.hub import parse_hub_address

huggingface_hub = pytest.importorskip("huggingface_hub")


class FakeHub:
    """Repositories as lists of files; calls are kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.repos: dict[str, list[str]] = {}
        self.calls: list[dict[str, Any]] = []
        self.failure: Exception | None = None
        self.cached: set[str] = set()

    def snapshot_download(self, repo: str, **options: Any) -> str:
        self.calls.append({"repo": repo, **options})
        local = options.get("local_files_only", False)
        if self.failure and not local:
            raise self.failure
        if local and repo not in self.cached:
            raise FileNotFoundError(repo)
        if bar := options.get("tqdm_class"):
            with bar(total=10, unit="B", desc="Downloading", name="hub") as shown:
                shown.update(4)
                shown.update(6)
            with bar(["a file"], desc="Fetching 1 files") as shown:
                list(shown)
        folder = self.folder / repo.replace("/", "--")
        for name in self.repos[repo]:
            allowed = any(fnmatch.fnmatch(name, pattern) for pattern in options["allow_patterns"])
            ignored = any(
                fnmatch.fnmatch(name, pattern) for pattern in options["ignore_patterns"] or []
            )
            if allowed and not ignored:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(name)
        return str(folder)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    fake = FakeHub(tmp_path / "hub")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake.snapshot_download)
    monkeypatch.setenv("SATCHEL_CACHE", str(tmp_path / "cache"))
    return fake


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


def test_only_what_a_checkpoint_needs_is_fetched(hub: FakeHub) -> None:
    needed = {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"}
    others = {"original/consolidated.00.pth", "original/params.json", "onnx/model.onnx"}
    others |= {"README.md", "model.gguf", "pytorch_model.bin", "consolidated.safetensors"}
    hub.repos["org/repo"] = [*needed, *others]
    told: list[Any] = []
    assert files(pull("hf:org/repo@v1.0", lambda *what: told.append(what))) == needed
    assert [call["revision"] for call in hub.calls] == ["v1.0"]
    assert told == [("downloading org/repo", 4, 10), ("downloading org/repo", 10, 10)]


def test_older_weights_are_fetched_where_there_are_no_others(hub: FakeHub) -> None:
    hub.repos["org/repo"] = ["config.json", "pytorch_model.bin"]
    assert files(pull("hf:org/repo", force=True)) == {"config.json", "pytorch_model.bin"}
    assert all(call["force_download"] for call in hub.calls)


def test_a_single_file_is_fetched_by_its_name(hub: FakeHub) -> None:
    hub.repos["org/repo"] = ["a.gguf", "b.gguf"]
    path = pull("hf:org/repo:a.gguf")
    assert path.name == "a.gguf" and files(path.parent) == {"a.gguf"}
    with pytest.raises(DownloadError, match=r"hf:org/repo has no c\.gguf"):
        pull("hf:org/repo:c.gguf")


def test_a_catalogue_name_leads_to_its_repository(hub: FakeHub) -> None:
    hub.repos["HuggingFaceTB/SmolLM2-360M-Instruct"] = ["config.json", "model.safetensors"]
    assert files(pull("smollm2-360m")) == {"config.json", "model.safetensors"}
    hub.repos["karpathy/tinyllamas"] = [
        "stories260K/stories260K.bin",
        "stories260K/tok512.bin",
        "stories15M.bin",
        "stories15M.pt",
    ]
    path = pull("stories260k")
    assert path.name == "stories260K.bin"
    tokenizer = llama2c_tokenizer(path.parent, 512)
    assert tokenizer is not None and tokenizer.path.name == "tok512.bin"


def test_weights_and_tokenizer_of_two_repositories_come_together(
    hub: FakeHub, tmp_path: Path
) -> None:
    hub.repos["karpathy/tinyllamas"] = ["stories15M.bin", "stories42M.bin"]
    hub.repos["hf-internal-testing/llama-tokenizer"] = ["tokenizer.model", "tokenizer.json"]
    path = pull("stories15m")
    assert path == tmp_path / "cache" / "checkpoints" / "stories15m" / "stories15M.bin"
    assert files(path.parent) == {"stories15M.bin", "tokenizer.model", ".lock"}
    calls = len(hub.calls)
    assert pull("stories15m") == path and len(hub.calls) == calls


def test_without_network_the_hubs_cache_is_used(hub: FakeHub) -> None:
    hub.repos["org/repo"] = ["config.json", "model.safetensors"]
    hub.failure = ConnectionError("no route to host.\nmore text")
    with pytest.raises(DownloadError) as caught:
        pull("hf:org/repo")
    message = str(caught.value)
    assert "could not be fetched (no route to host) and is not in the hub's cache" in message
    assert "'hf download org/repo'" in message and "\n" not in message
    hub.cached.add("org/repo")
    assert files(pull("hf:org/repo")) == {"config.json", "model.safetensors"}
    assert hub.calls[-1]["local_files_only"] is True


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("GatedRepoError", "asks for an account that accepted its licence.*hf auth login"),
        ("RepositoryNotFoundError", "does not exist, or is private"),
        ("RevisionNotFoundError", "does not exist, or is private"),
    ],
)
def test_refusals_of_the_hub_say_what_to_do(hub: FakeHub, name: str, advice: str) -> None:
    kind = getattr(huggingface_hub.errors, name)
    hub.failure = kind.__new__(kind)
    with pytest.raises(DownloadError, match=advice):
        pull("hf:org/repo")
    assert len(hub.calls) == 1


def test_without_the_library_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(DownloadError, match=r"pip install 'satchel\[hub\]'"):
        pull("hf:org/repo")


def test_addresses() -> None:
    source, revision = parse_hub_address("hf:org/my.repo-1@refs/pr/3:sub/file.gguf")
    assert (source.repo, source.files, revision) == (
        "org/my.repo-1",
        ("sub/file.gguf",),
        "refs/pr/3",
    )
    for wrong in ("hf:", "hf:repo", "hf:a/b/c", "hf:a/b@"):
        with pytest.raises(DownloadError, match="is not an address"):
            parse_hub_address(wrong)
