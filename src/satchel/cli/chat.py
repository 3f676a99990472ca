"""satchel chat: a conversation in the terminal."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satchel.cli.arguments import add_program_options
from satchel.cli.generation import add_generation_options, generation_options, given_sampling
from satchel.cli.output import say
from satchel.cli.terminal_text import wrapped
from satchel.errors import ConfigError, TemplateError, UsageError

if TYPE_CHECKING:
    from satchel.llm.llm import LLM

HELP = "talk to a model; a known name is fetched and exported on first use"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help="a program, a name such as smollm2-135m, or a checkpoint",
    )
    parser.add_argument(
        "--url", help="talk to a model of this server (MODEL, or its first) instead of one here"
    )
    parser.add_argument("--api-key", metavar="KEY", help="the server's; also from SATCHEL_API_KEY")
    prompt = parser.add_mutually_exclusive_group()
    prompt.add_argument("-p", "--prompt", metavar="TEXT", help="answer this and leave")
    prompt.add_argument("--prompt-file", metavar="FILE", help="the same from a file, - for stdin")
    parser.add_argument(
        "--session",
        metavar="FILE",
        help="go on with the conversation in FILE, if it is there, and keep it there at the end; "
        "what was said is not read again",
    )
    add_generation_options(parser)
    add_program_options(parser)


def execute(arguments: argparse.Namespace) -> None:
    from satchel.cli.answer import answer
    from satchel.cli.programs import open_llm, read_prompt

    prompt = read_prompt(arguments)
    if prompt is None and arguments.json:
        raise ConfigError("a conversation is not one JSON object", "Give --prompt with --json.")
    if arguments.url:
        _chat_remote(arguments, prompt)
        return
    if arguments.model is None:
        raise UsageError("there is no model to talk to", "Give a MODEL, or a server with --url.")
    llm = open_llm(arguments)
    if not llm.has_chat_template:
        raise TemplateError(
            f"{llm.program.path} has no chat template, so it cannot chat",
            "It is a base model: continue a text with satchel run FILE --raw --prompt TEXT.",
        )
    if prompt is not None and arguments.session:
        raise ConfigError("--session is for a conversation", "Leave out --prompt.")
    if prompt is not None:
        answer(llm, prompt, arguments)
    else:
        converse(llm, arguments)


def _chat_remote(arguments: argparse.Namespace, prompt: str | None) -> None:
    from satchel.cli.answer import stream, summary
    from satchel.cli.output import print_json
    from satchel.cli.remote_llm import open_remote

    remote: Any = open_remote(arguments)
    if prompt is None:
        converse(remote, arguments)
        return
    generation = remote.generate(prompt, system=arguments.system, **generation_options(arguments))
    if not arguments.json:
        stream(generation)
        say(summary(generation))
        return
    for _ in generation:
        pass
    stats = generation.stats
    print_json(
        {
            "text": generation.text,
            "stop_reason": generation.stop_reason,
            "url": arguments.url,
            "model": remote.name,
            "prompt_tokens": stats.prompt_tokens,
            "reused_tokens": stats.reused_tokens,
            "new_tokens": stats.new_tokens,
            "decode_tok_s": stats.decode_tok_s,
            "ttft_s": stats.ttft_s,
        }
    )


def converse(llm: LLM, arguments: argparse.Namespace) -> None:
    """Read messages and answer them until the person leaves."""
    from satchel.cli.conversation import COMMANDS, Conversation
    from satchel.cli.prompt import open_reader, read_message
    from satchel.llm.session_file import load_session, save_session
    from satchel.sources.cache import cache_folder

    name = llm.program.about.name or llm.program.path.name
    options = generation_options(arguments) | {"sampling": llm.chat_sampling}
    options["on_context_full"] = arguments.on_context_full or "slide"
    # A conversation that slides has no end of its own.
    options["max_new_tokens"] = arguments.max_new_tokens or llm.session.context or None
    conversation = Conversation(llm, arguments.system, options)
    sampling = llm.chat_sampling.changed(**given_sampling(arguments)).describe()
    source = "as the model asks for" if llm.program.language_model.generation else "by default"
    source = (
        "as chosen" if any(v is not None for v in given_sampling(arguments).values()) else source
    )
    say(wrapped(f"{name}: {llm.session.context} tokens of context; {sampling}, {source}."))
    say("/help shows commands, Ctrl-D leaves.")
    kept = Path(arguments.session) if arguments.session else None
    if kept and kept.exists():
        conversation.messages = list(load_session(kept, llm.sessions))
        say(f"Going on with {kept}: {len(conversation.messages)} messages.")
    reader = open_reader(cache_folder() / "chat_history", list(COMMANDS))
    while not conversation.done:
        try:
            text = read_message(reader)
        except EOFError:
            break
        except KeyboardInterrupt:
            say("Ctrl-D or /exit leaves.")
            continue
        conversation.take(text)
    if kept:
        save_session(kept, llm.session, conversation.messages)
        say(f"The conversation is in {kept}.")
