"""satchel serve: models behind OpenAI's API, for many clients."""

from __future__ import annotations

import argparse
import ipaddress
import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satchel.cli.arguments import add_program_options, count, positive, threads
from satchel.cli.output import print_json, say
from satchel.errors import ConfigError, InputError, SatchelError

if TYPE_CHECKING:
    from satchel.llm.llm import LLM
    from satchel.speech.transcriber import Transcriber
    from satchel.text.encoder import TextEncoder

HELP = "serve models to many clients, with OpenAI's API and a page to chat in"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def size(text: str) -> int:
    """A number of bytes: 512M, 2G.

    >>> size("2G")
    2147483648
    """
    found = re.fullmatch(r"(\d{1,12})([KMGT]?)(?:I?B)?", text.upper(), re.ASCII)
    if not found or int(found[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 512M or 2G")
    return int(found[1]) * _UNITS[found[2]]


def seconds(text: str) -> float:
    if not re.fullmatch(r"\d{1,6}(\.\d+)?", text, re.ASCII) or float(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return float(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models",
        metavar="MODEL",
        nargs="+",
        help="programs, names such as smollm2-135m or checkpoints; NAME=MODEL calls one NAME",
    )
    parser.add_argument(
        "--any-model",
        action="store_true",
        help="requests for a model that is not there get the first one",
    )
    parser.add_argument(
        "--chat-template",
        metavar="FILE",
        help="a Jinja template that is used instead of the models' own",
    )
    group = parser.add_argument_group("where, and for whom")
    group.add_argument(
        "--host", default="127.0.0.1", help="the address to listen on; 0.0.0.0 is all"
    )
    group.add_argument("--port", type=count, default=8080, help="0 chooses one that is free")
    group.add_argument(
        "--api-key",
        action="append",
        default=[],
        metavar="KEY",
        help="clients must send this; repeatable; also from SATCHEL_API_KEY",
    )
    group.add_argument(
        "--cors",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="let web pages of ORIGIN ask, such as https://example.org or *; repeatable",
    )
    group.add_argument("--tls-cert", metavar="FILE", help="serve HTTPS with this certificate")
    group.add_argument("--tls-key", metavar="FILE", help="and this private key")
    group.add_argument(
        "--image-files",
        metavar="FOLDER",
        help="let requests show images of this folder by file: addresses",
    )
    group.add_argument(
        "--fetch-images",
        action="store_true",
        help="fetch images that requests show by http: and https: addresses",
    )
    group.add_argument("--no-page", action="store_true", help="no page to chat in at /")
    group = parser.add_argument_group("how much")
    group.add_argument(
        "--max-sequences",
        type=positive,
        default=32,
        metavar="N",
        help="answers of a model that are made at the same time",
    )
    group.add_argument(
        "--queue", type=count, default=64, metavar="N", help="answers that may wait; others get 429"
    )
    group.add_argument(
        "--cache-memory",
        type=size,
        metavar="SIZE",
        help="of a model's KV caches, such as 2G (default: up to half of the machine's memory)",
    )
    group.add_argument("--max-body", type=size, default="8M", metavar="SIZE", help="of a request")
    group.add_argument(
        "--max-prompt", type=positive, metavar="N", help="tokens (default: the context)"
    )
    group.add_argument(
        "--max-output", type=positive, metavar="N", help="tokens (default: the context)"
    )
    group.add_argument(
        "--max-connections", type=positive, default=512, metavar="N", help="others get 503"
    )
    group.add_argument(
        "--time-limit", type=seconds, default=600.0, metavar="S", help="seconds for an answer"
    )
    group.add_argument(
        "--drain",
        type=seconds,
        default=60.0,
        metavar="S",
        help="seconds that running answers have to end after SIGTERM",
    )
    group.add_argument("--access-log", action="store_true", help="a line for each request")
    group.add_argument("--log-prompts", action="store_true", help="what clients send, in the log")
    add_program_options(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C; then finish what is running."""
    try:
        import uvicorn

        from satchel.serve.app import App
    except ImportError as error:
        raise SatchelError(
            f"serving needs {error.name}", "pip install 'satchel[serve]' brings it."
        ) from None
    if bool(arguments.tls_cert) != bool(arguments.tls_key):
        raise ConfigError("--tls-cert and --tls-key go together", "Give both, or none.")
    keys = (*arguments.api_key, *filter(None, [os.environ.get("SATCHEL_API_KEY")]))
    listening = _listen(arguments.host, arguments.port)
    models, speech, encoders = _open_models(arguments)
    app = App(models, _settings(arguments, keys), speech, encoders)
    names = [*app.models.names, *speech, *encoders]
    address = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
    scheme = "https" if arguments.tls_cert else "http"
    url = f"{scheme}://{address}:{listening.getsockname()[1]}"
    if not _is_local(arguments.host) and not keys:
        say(
            f"Anyone who reaches {arguments.host} can use this server: no --api-key was given. "
            "The default --host 127.0.0.1 is for this machine only."
        )
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            lifespan="off",
            log_level="info" if arguments.access_log or arguments.log_prompts else "warning",
            access_log=arguments.access_log,
            server_header=False,
            limit_concurrency=arguments.max_connections,
            timeout_graceful_shutdown=int(arguments.drain) or 1,
            ssl_certfile=arguments.tls_cert,
            ssl_keyfile=arguments.tls_key,
        )
    )
    if arguments.json:
        print_json({"url": url, "models": names})
    say(f"Serving {', '.join(names)} at {url} (OpenAI's API: {url}/v1). Ctrl-C stops.")
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:  # the signal that uvicorn has acted on already
        pass
    finally:
        app.close()
    say("Stopped.")
    return 0


def _listen(host: str, port: int) -> socket.socket:
    """Before models are loaded: a port that is taken is told at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if port > 65535:
        raise ConfigError(f"there is no port {port}", "Ports are 0 to 65535.")
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(2048)
    except OSError as error:
        listening.close()
        raise InputError(
            f"cannot listen on {host} port {port}: {error.strerror or error}",
            "Choose another --port, or --port 0 for one that is free.",
        ) from None
    return listening


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _settings(arguments: argparse.Namespace, keys: tuple[str, ...]) -> Any:
    from satchel.serve.settings import Settings

    return Settings(
        max_sequences=arguments.max_sequences,
        queue=arguments.queue,
        cache_memory=arguments.cache_memory or 0,
        max_body=arguments.max_body,
        max_prompt=arguments.max_prompt,
        max_output=arguments.max_output,
        time_limit=arguments.time_limit,
        api_keys=keys,
        origins=tuple(arguments.cors),
        # On this machine only: then no page elsewhere may come by a name that points here.
        hosts=("localhost", "127.0.0.1", "::1", arguments.host)
        if _is_local(arguments.host) and not keys
        else (),
        any_model=arguments.any_model,
        image_files=arguments.image_files,
        fetch_images=arguments.fetch_images,
        log_prompts=arguments.log_prompts,
        page=not arguments.no_page,
    )


def _open_models(
    arguments: argparse.Namespace,
) -> tuple[dict[str, LLM], dict[str, Transcriber], dict[str, TextEncoder]]:
    """Those that write, those that hear, and those that make vectors."""
    from satchel.cli.programs import find_program, open_program
    from satchel.llm.llm import LLM
    from satchel.program.about import AboutSpeech
    from satchel.serve.app import model_name
    from satchel.speech.transcriber import Transcriber
    from satchel.text.encoder import TextEncoder

    opened: dict[str, LLM] = {}
    hearing: dict[str, Transcriber] = {}
    encoders: dict[str, TextEncoder] = {}
    for given in arguments.models:
        alias, equals, source = given.partition("=")
        if not equals or os.path.exists(given):
            alias, source = model_name(given), given
        if not alias or alias in {**opened, **hearing, **encoders}:
            raise ConfigError(f"two models are called {alias!r}", "Give each a name: NAME=MODEL.")
        program = open_program(str(find_program(source)), arguments)
        if isinstance(program.about, AboutSpeech):
            hearing[alias] = Transcriber(program, threads(arguments))
            continue
        if "text" in program.metadata and not program.is_language_model:
            encoders[alias] = TextEncoder(program, threads(arguments))
            continue
        if not program.is_language_model:
            raise InputError(f"{program.path} is not a language model, so it cannot be served")
        memory = arguments.cache_memory or 0
        opened[alias] = LLM(program, threads(arguments), cache_memory=memory)
        if arguments.chat_template:
            opened[alias].use_chat_template(_read_text(arguments.chat_template))
    return opened, hearing, encoders


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from None
