"""Which patterns split text before byte-level BPE, by the name that GGUF files give them.

The patterns are those of the models' own tokenizer.json files. The names are llama.cpp's.
"""

from __future__ import annotations

from dataclasses import dataclass

from satchel.errors import TokenizerError

_CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _words(letters: str, digits: str, other: str, ending: str = r"[\r\n]*") -> str:
    return rf"{_CONTRACTION}|[^\r\n\p{{L}}\p{{N}}]?{letters}+|{digits}| ?{other}+{ending}|{_SPACES}"


def _cased_words(digits: str, ending: str) -> str:
    lead = r"[^\r\n\p{L}\p{N}]?"
    return (
        rf"{lead}{_UPPER}*{_LOWER}+{ending}|{lead}{_UPPER}+{_LOWER}*{ending}"
        rf"|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
    )


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = _words(r"\p{L}", r"\p{N}{1,3}", r"[^\s\p{L}\p{N}]")
QWEN2 = _words(r"\p{L}", r"\p{N}", r"[^\s\p{L}\p{N}]")
QWEN35 = _words(r"[\p{L}\p{M}]", r"\p{N}", r"[^\s\p{L}\p{M}\p{N}]")
SEED_CODER = _words(r"\p{L}", r"\p{N}", r"[^\s\p{L}\p{N}]", ending="")
GPT4O = _cased_words(r"\p{N}{1,3}", f"{_CONTRACTION}?")
TEKKEN = _cased_words(r"\p{N}", "")
_FALCON = (r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]")
_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]")
_CJK = "[一-龥\u0800-一가-\ud7ff]+"  # the ranges that DeepSeek's first tokenizers name
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}")
# The letters with case that its tokenizer lists one range after the other, as code points.
_DEEPSEEK_LETTERS = """
    41-5a 61-7a b5 c0-d6 d8-f6 f8-1ba 1bc-1bf 1c4-293 295-2af 370-373 376-377 37b-37d 37f 386
    388-38a 38c 38e-3a1 3a3-3f5 3f7-481 48a-52f 531-556 10a0-10c5 13a0-13f5 13f8-13fd 1c90-1cba
    1cbd-1cbf 1d00-1d2b 1d6b-1d77 1d79-1d9a 1e00-1f15 1f18-1f1d 1f20-1f45 1f48-1f4d 1f50-1f57
    1f59 1f5b 1f5d 1f5f-1f7d 1f80-1fb4 1fb6-1fbc 1fbe 1fc2-1fc4 1fc6-1fcc 1fd0-1fd3 1fd6-1fdb
    1fe0-1fec 1ff2-1ff4 1ff6-1ffc 2102 2107 210a-2113 2115 2119-211d 2124 2126 2128 212a-212d
    212f-2134 2139 213c-213f 2145-2149 214e 2183-2184 2c00-2c7b 2c7e-2ce4 2ceb-2cee 2cf2-2cf3
    a640-a66d a680-a69b a722-a76f a771-a787 a78b-a78e ab70-abbf fb00-fb06 fb13-fb17 ff21-ff3a
    ff41-ff5a 10400-1044f 104b0-104d3 104d8-104fb 10c80-10cb2 10cc0-10cf2 118a0-118df
    1e900-1e943
"""


def _letters(ranges: str) -> str:
    """A class of characters from ranges of code points."""
    ends = ([int(end, 16) for end in part.split("-")] for part in ranges.split())
    return "[" + "".join("-".join(map(chr, both)) for both in ends) + "]"


_DEEPSEEK_LLM = (
    r"[\r\n]",
    rf"\s?{_letters(_DEEPSEEK_LETTERS)}+",
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    r"\s+$",
    _CJK,
    r"\p{N}",
)
_DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}",
)


@dataclass(frozen=True)
class PreTokenizer:
    """How text is cut before BPE, and what a model that is cut this way takes for granted."""

    patterns: tuple[str, ...]
    nfc: bool = False  # text is brought to Unicode's composed form first
    whole_words: bool = False  # a word that is a token is not put together from merges
    add_bos: bool = False  # unless the file says otherwise


_LLAMA3 = PreTokenizer((LLAMA3,), whole_words=True, add_bos=True)
_FAMILIES: tuple[tuple[PreTokenizer, str], ...] = (
    (PreTokenizer(_DEFAULT), "default"),
    (
        PreTokenizer((GPT2,)),
        "gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4 gigachat a.x-4.0 mellum",
    ),
    (
        PreTokenizer((r"\p{N}", GPT2)),
        "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
    ),
    (_LLAMA3, "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2"),
    (PreTokenizer((LLAMA3,)), "dbrx smaug-bpe glm4 chatglm-bpe"),
    (PreTokenizer((QWEN2,), nfc=True), "qwen2"),
    (PreTokenizer((QWEN2,)), "deepseek-r1-qwen stablelm2 megrez hunyuan solar-open grok-2"),
    (PreTokenizer((SEED_CODER,)), "seed-coder"),  # Seed-OSS too
    (PreTokenizer((QWEN35,), nfc=True), "qwen35"),
    (PreTokenizer((GPT4O,)), "gpt-4o llama4 kanana2 minimax-m2"),
    (PreTokenizer((TEKKEN,), whole_words=True, add_bos=True), "tekken"),
    (PreTokenizer(_FALCON), "falcon"),
    (PreTokenizer(_DEEPSEEK_LLM), "deepseek-llm"),
    (PreTokenizer(_DEEPSEEK_CODER), "deepseek-coder"),
    (PreTokenizer(_DEEPSEEK_V3), "deepseek-v3 hunyuan-dense joyai-llm"),
)
PRE_TOKENIZERS = {name: how for how, names in _FAMILIES for name in names.split()}


def find_pre_tokenizer(name: str) -> PreTokenizer:
    """The pre-tokenizer that a GGUF file names in ``tokenizer.ggml.pre``."""
    try:
        return PRE_TOKENIZERS[name]
    except KeyError:
        raise TokenizerError(
            f"The pre-tokenizer {name!r} (tokenizer.ggml.pre) is not known",
            "Put the model's own tokenizer.json and tokenizer_config.json in a folder with its "
            "safetensors and export that",
        ) from None
