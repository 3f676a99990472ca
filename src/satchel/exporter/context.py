"""How many tokens a text may have: prompt and answer together."""

from __future__ import annotations

from satchel.exporter.options import ExportOptions
from satchel.graph.ir import DType
from satchel.models.base import Decoder
from satchel.remarks import remark

CACHE_BYTES = 2 << 30  # what a text that fills the context takes, unless someone asks for more


def chosen_context(options: ExportOptions, model: Decoder, cache: DType) -> int:
    """As asked, as the target likes it, or what is comfortable; the model's own at most."""
    asked = options.context or options.chip.usual.context
    return min(asked or comfortable_context(model, cache), model.context)


def comfortable_context(model: Decoder, cache: DType) -> int:
    """The model's own context, as far as its plain rotations and caches of 2 GB reach.

    Pages are taken as a text grows, so a context that nobody fills costs nothing. It does not
    depend on this machine: the same export gives the same file everywhere.
    """
    fits = CACHE_BYTES // model.cache_bytes(cache) // 1024 * 1024
    return min(model.plain_context or model.context, max(fits, 2048))


def tell_context(options: ExportOptions, most: int, context: int) -> None:
    """Say that a text may have fewer tokens than someone might think."""
    if options.context and options.context > most:
        remark(
            f"The context is {most} tokens, all that the model was made for, and not "
            f"{options.context}."
        )
    elif options.context is None and context < most:
        remark(f"The context is {context} tokens, and with the option context up to {most}.")
