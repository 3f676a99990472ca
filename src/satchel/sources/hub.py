"""Fetching from the Hugging Face Hub; needs the extra ``hub``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from satchel.errors import DownloadError
from satchel.sources.catalog import HubSource
from satchel.sources.progress import Progress

# All that a checkpoint needs, from the top folder only: other folders repeat the weights.
PATTERNS = ["*.json", "*.safetensors", "tokenizer.model", "*.jinja", "*.txt"]
OLDER_WEIGHTS = ["pytorch_model*.bin"]
NOT_NEEDED = ["*/*", "consolidated*"]

_ADDRESS = re.compile(r"hf:([\w.-]+/[\w.-]+)(?:@([^:]+))?(?::(.+))?")


def parse_hub_address(address: str) -> tuple[HubSource, str | None]:
    """The repository and revision of ``hf:ORG/REPO[@REVISION][:FILE]``.

    >>> parse_hub_address("hf:org/repo@v1")
    (HubSource(repo='org/repo', files=(), tokenizer=None, gated=False), 'v1')
    """
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise DownloadError(
            f"{address!r} is not an address on the Hugging Face Hub",
            "Write hf:ORG/REPO, hf:ORG/REPO@REVISION or hf:ORG/REPO:FILE.gguf",
        )
    repo, revision, file = match.groups()
    return HubSource(repo, (file,) if file else ()), revision


def fetch_from_hub(
    source: HubSource,
    revision: str | None = None,
    progress: Progress | None = None,
    force: bool = False,
) -> Path:
    """A repository's snapshot in the hub's own cache, or the first of the files asked for."""
    options: dict[str, Any] = {"revision": revision, "force_download": force}
    if progress is not None:
        options["tqdm_class"] = _reporting_bar(f"downloading {source.repo}", progress)
    if source.files:
        folder = _snapshot(source, options, list(source.files), None)
        missing = [name for name in source.files if not (folder / name).is_file()]
        if missing:
            raise DownloadError(
                f"hf:{source.repo} has no {', '.join(missing)}", "Check the name of the file"
            )
        return folder / source.files[0]
    folder = _snapshot(source, options, PATTERNS, NOT_NEEDED)
    if not any(folder.glob("*.safetensors")):
        folder = _snapshot(source, options, PATTERNS + OLDER_WEIGHTS, NOT_NEEDED)
    return folder


def in_hub_cache(source: HubSource, revision: str | None = None) -> Path | None:
    """What has been fetched already, without asking the hub for more."""
    try:
        import huggingface_hub

        folder = Path(
            huggingface_hub.snapshot_download(source.repo, revision=revision, local_files_only=True)
        )
    except Exception:  # not there, or nothing that could look
        return None
    return folder / source.files[0] if source.files else folder


def _snapshot(
    source: HubSource, options: dict[str, Any], allow: list[str], ignore: list[str] | None
) -> Path:
    try:
        import huggingface_hub
        from huggingface_hub import errors
    except ImportError as error:
        raise DownloadError(
            f"hf:{source.repo} is fetched with huggingface_hub, which is not installed",
            "Run pip install 'satchel[hub]'",
        ) from error

    def download(**more: Any) -> Path:
        return Path(
            huggingface_hub.snapshot_download(
                source.repo, allow_patterns=allow, ignore_patterns=ignore, **(options | more)
            )
        )

    try:
        return download()
    except errors.GatedRepoError as error:
        raise DownloadError(
            f"hf:{source.repo} asks for an account that accepted its licence",
            "Accept it on the model's page, then run 'hf auth login'",
        ) from error
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError) as error:
        raise DownloadError(
            f"hf:{source.repo} or its revision does not exist, or is private",
            "Check the name, or run 'hf auth login'",
        ) from error
    except errors.HFValidationError as error:
        raise DownloadError(f"hf:{source.repo} is not a valid name", "Check it") from error
    except Exception as failure:
        # No network, whatever the HTTP library calls it: what is in the hub's cache will do.
        try:
            return download(local_files_only=True, force_download=False)
        except Exception as error:
            raise DownloadError(
                f"hf:{source.repo} could not be fetched ({_first_line(failure)}) and is not in "
                "the hub's cache",
                f"On a machine with network run 'hf download {source.repo}', copy the folder, "
                "and give its path",
            ) from error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(". ") if lines else type(error).__name__


def _reporting_bar(label: str, progress: Progress) -> type:
    """A progress bar class that draws nothing and reports bytes."""
    from tqdm import tqdm  # type: ignore[import-untyped,unused-ignore]

    class Nowhere:
        def write(self, text: str) -> int:
            return len(text)

        def flush(self) -> None:
            pass

    best = 0

    class ReportingBar(tqdm):  # type: ignore[type-arg,misc,unused-ignore]
        def __init__(self, *args: Any, **options: Any) -> None:
            options.pop("name", None)  # the hub's own, unknown to tqdm
            super().__init__(*args, **{**options, "file": Nowhere(), "disable": False})

        def update(self, n: float | None = 1) -> bool | None:
            nonlocal best
            shown: bool | None = super().update(n)
            # The hub keeps several bars: files, bytes received, bytes written.
            if self.unit == "B" and self.n > best:
                best = int(self.n)
                progress(label, best, int(self.total) if self.total else None)
            return shown

    return ReportingBar
