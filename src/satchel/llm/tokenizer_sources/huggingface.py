"""A Hugging Face folder: tokenizer.json and the small files around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satchel.checkpoints.base import TokenizerSource
from satchel.errors import TokenizerError
from satchel.llm.tokenizer_sources.backend import check_special_ids, load_backend, shared_backend
from satchel.llm.tokenizer_sources.files import read_json_object, read_text
from satchel.llm.tokenizer_sources.spec import TokenizerSpec

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend


def read_huggingface(source: TokenizerSource) -> TokenizerSpec:
    """Read a folder. tokenizer.json is kept as it is, unless tokens lie outside of it."""
    path = source.path if source.path.is_file() else source.path / "tokenizer.json"
    text = read_text(path)
    backend = load_backend(text, str(path))
    spec = apply_folder_settings(TokenizerSpec(json=text), path.parent, backend)
    spec = _with_surroundings(spec, path)
    check_special_ids(spec, lambda token_id: backend.id_to_token(token_id) is not None)
    return spec


def apply_folder_settings(
    spec: TokenizerSpec, folder: Path, backend: Backend | None = None
) -> TokenizerSpec:
    """What the files beside a tokenizer say of special tokens and templates.

    ``backend``, if given, is the loaded ``spec.json``, and gets the tokens that are missing in it.
    """
    config = read_json_object(folder / "tokenizer_config.json")
    settings = {**read_json_object(folder / "special_tokens_map.json"), **config}
    extra_tokens = _tokens_outside(config, read_json_object(folder / "added_tokens.json"))
    named = _special_tokens(settings)
    templates = _templates(folder, config)
    generation = read_json_object(folder / "generation_config.json")
    if not (settings or extra_tokens or templates or generation):
        return spec
    backend = backend or load_backend(spec.json, str(folder))
    text = spec.json
    if _add_missing(backend, extra_tokens, folder):
        text = backend.to_str()

    special_tokens = {**spec.special_tokens, **named}

    def id_of(name: str, default: int | None) -> int | None:
        return backend.token_to_id(named[name]) if name in named else default

    bos_id = id_of("bos_token", spec.bos_id)
    return replace(
        spec,
        json=text,
        bos_id=bos_id,
        bos_token=None if bos_id is None else special_tokens.get("bos_token"),
        eos_ids=_end_ids(backend, spec, named.get("eos_token"), generation, folder),
        pad_id=id_of("pad_token", spec.pad_id),
        unk_id=id_of("unk_token", spec.unk_id),
        add_bos=_flag(config, "add_bos_token", spec.add_bos) and bos_id is not None,
        add_eos=_flag(config, "add_eos_token", spec.add_eos),
        chat_template=templates.pop("default", spec.chat_template),
        named_templates={**spec.named_templates, **templates},
        special_tokens=special_tokens,
    )


def _flag(config: Mapping[str, Any], name: str, default: bool) -> bool:
    value = config.get(name)
    return value if isinstance(value, bool) else default


def _content(value: object) -> str | None:
    """A token is given as its text, or as a table with its text among other things."""
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    named = {
        name: _content(value)
        for name, value in settings.items()
        if name.endswith("_token") and not name.startswith("add_")
    }
    return {name: content for name, content in named.items() if content is not None}


def _tokens_outside(
    config: Mapping[str, Any], added_tokens: Mapping[str, Any]
) -> dict[int, dict[str, Any]]:
    """Tokens by id that the small files name; most often tokenizer.json has them all."""
    outside: dict[int, dict[str, Any]] = {}
    for content, token_id in added_tokens.items():
        if isinstance(token_id, int):
            outside[token_id] = {"content": content, "special": False}
    decoder = config.get("added_tokens_decoder")
    for token_id, token in decoder.items() if isinstance(decoder, Mapping) else ():
        if str(token_id).isdecimal() and isinstance(token, Mapping) and _content(token):
            outside[int(token_id)] = dict(token)
    return outside


def _add_missing(backend: Backend, tokens: dict[int, dict[str, Any]], folder: Path) -> bool:
    from tokenizers import AddedToken

    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    changed = False
    for token_id, token in sorted(tokens.items()):
        content = str(token["content"])
        if backend.token_to_id(content) is None:
            backend.add_tokens(
                [AddedToken(content, **{flag: bool(token.get(flag, False)) for flag in flags})]
            )
            changed = True
        if backend.token_to_id(content) != token_id:
            raise TokenizerError(
                f"{folder}: the token {content!r} should be {token_id} by tokenizer_config.json or "
                f"added_tokens.json, but is {backend.token_to_id(content)} in the tokenizer",
                "The files belong to different models; get them again from one place",
            )
    return changed


def _end_ids(
    backend: Backend,
    spec: TokenizerSpec,
    eos_token: str | None,
    generation: Mapping[str, Any],
    folder: Path,
) -> tuple[int, ...]:
    ends = list(spec.eos_ids)
    if eos_token is not None:
        eos_id = backend.token_to_id(eos_token)
        if eos_id is None:
            raise TokenizerError(
                f"{folder}: the end token {eos_token!r} is not in the vocabulary",
                "tokenizer_config.json and tokenizer.json belong to different models",
            )
        ends = [eos_id]
    more = generation.get("eos_token_id")
    ends += [one for one in (more if isinstance(more, list) else [more]) if isinstance(one, int)]
    return tuple(dict.fromkeys(ends))


def _templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Templates by name, "default" among them; a file of its own wins over the config."""
    templates: dict[str, str] = {}
    for given in (
        config.get("chat_template"),
        read_json_object(folder / "chat_template.json").get("chat_template"),
    ):
        if isinstance(given, str):
            templates["default"] = given
        elif isinstance(given, list):
            for entry in given:
                if isinstance(entry, Mapping) and isinstance(entry.get("template"), str):
                    templates[str(entry.get("name", "default"))] = entry["template"]
    if (file := folder / "chat_template.jinja").is_file():
        templates["default"] = read_text(file)
    for file in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        templates[file.stem] = read_text(file)
    return templates


def _with_surroundings(spec: TokenizerSpec, path: Path) -> TokenizerSpec:
    """What plain text gets before and after it: the post-processor decides, not the config."""
    backend, _ = shared_backend(spec.json)
    bare = backend.encode("a", add_special_tokens=False).ids
    full = backend.encode("a", add_special_tokens=True).ids
    for before in range(len(full) - len(bare) + 1):
        if full[before : before + len(bare)] == bare:
            prefix, suffix = full[:before], full[before + len(bare) :]
            add_bos, add_eos = prefix == [spec.bos_id], suffix in [[end] for end in spec.eos_ids]
            return replace(
                spec,
                add_bos=add_bos,
                add_eos=add_eos,
                prefix_ids=() if add_bos else tuple(prefix),
                suffix_ids=() if add_eos else tuple(suffix),
            )
    raise TokenizerError(
        f"{path} changes the text 'a' itself when it adds special tokens: {full}",
        "Such tokenizers are not supported",
    )
