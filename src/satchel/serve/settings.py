"""How much a server takes on, from whom, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

from satchel.errors import ConfigError


@dataclass(frozen=True)
class Settings:
    """The limits of a server; those in tokens and sequences are of each model.

    >>> Settings(max_sequences=8).queue
    64
    """

    max_sequences: int = 32  # answers that are made at the same time
    queue: int = 64  # answers that may wait for their turn
    cache_memory: int = 0  # bytes of all KV caches of a model; 0 is half of the machine's memory
    max_body: int = 8 << 20  # bytes of a request
    max_prompt: int | None = None  # tokens; None is the model's context
    max_output: int | None = None  # tokens; None is the model's context
    time_limit: float = 600.0  # seconds for an answer, waiting included
    body_time_limit: float = 30.0  # seconds until a request has come in whole
    send_time_limit: float = 60.0  # seconds until a client has taken a piece of its answer
    kept_responses: int = 64 << 20  # bytes of responses that others may go on from
    stretch: float = 2.0  # times that a step of all answers takes with a piece of a prompt in it
    token_gap: float = 0.2  # the same in seconds, for chips that read prompts in long steps only
    api_keys: tuple[str, ...] = ()  # one of these must be sent; none is asked for if empty
    origins: tuple[str, ...] = ()  # web pages of these may ask (CORS); "*" is all
    hosts: tuple[str, ...] = ()  # names that the server answers to; any if empty
    any_model: bool = False  # whether names that are not there mean the first model
    image_files: str | None = None  # a folder whose files may be shown by file: addresses
    fetch_images: bool = False  # whether images are fetched from http: and https: addresses
    log_prompts: bool = False
    page: bool = True  # whether / is a page to chat in

    def __post_init__(self) -> None:
        for name in ("max_sequences", "max_body", "time_limit", "body_time_limit"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}", "It must be above 0.")
        if self.queue < 0 or self.cache_memory < 0:
            raise ConfigError("queue and cache_memory must be 0 or more")
