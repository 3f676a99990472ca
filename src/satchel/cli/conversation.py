"""The conversation of satchel chat: messages, commands, and what they do."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satchel.cli.answer import stream, summary
from satchel.cli.output import say, shown
from satchel.cli.terminal_text import TerminalText, wants_style, wrapped
from satchel.errors import ConfigError, InputError, SatchelError
from satchel.files import atomic_write, check_output

if TYPE_CHECKING:
    from satchel.llm.generation import Generation
    from satchel.llm.llm import LLM, Message

# name -> (what stands behind it, what it does)
COMMANDS = {
    "/help": ("", "this list"),
    "/set": ("[NAME VALUE]", "how to answer; alone, what is set"),
    "/system": ("[TEXT]", "begin anew with this system message; alone, show it"),
    "/regen": ("", "answer the last message once more"),
    "/undo": ("", "take the last message and its answer back"),
    "/save": ("FILE", "write the conversation to a file"),
    "/load": ("FILE", "go on with a conversation from a file"),
    "/stats": ("", "tokens and speeds so far"),
    "/image": ("FILE", "show the model an image, if it can see"),
    "/reset": ("", "start over"),
    "/exit": ("", "leave (or Ctrl-D)"),
}
_KEYS = 'Ctrl-C stops an answer. """ begins and ends a message of several lines, as does a paste.'
_ALIASES = {
    "/quit": "/exit",
    "/bye": "/exit",
    "/clear": "/reset",
    "/retry": "/regen",
    "/?": "/help",
}


def _number(text: str) -> float:
    return float(text)


def _on_or_off(text: str) -> dict[str, bool]:
    if text not in ("on", "off"):
        raise ValueError
    return {"enable_thinking": text == "on"}


# What /set takes: the option of LLM.generate and how its value is read.
SETTINGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "temperature": ("temperature", _number),
    "top_k": ("top_k", int),
    "top_p": ("top_p", _number),
    "min_p": ("min_p", _number),
    "repetition_penalty": ("repetition_penalty", _number),
    "seed": ("seed", int),
    "max_new_tokens": ("max_new_tokens", int),
    "stop": ("stop", lambda text: [text]),
    "on_context_full": ("on_context_full", str),
    "lookahead": ("lookahead", str),
    "thinking": ("template_variables", _on_or_off),
}


class Conversation:
    """What was said, and what a line that a person types does to it."""

    def __init__(self, llm: LLM, system: str | None, options: dict[str, Any]) -> None:
        self._llm = llm
        self._options = options
        self.messages: list[Message] = []
        self.done = False
        self._shown: list[Path] = []  # images that go with the next message
        self._turns: list[Generation] = []
        self._set_system(system or "")

    def take(self, text: str) -> None:
        """A message or a command, as a person typed it."""
        word, _, rest = text.partition(" ")
        is_command = word.startswith("/") and "/" not in word[1:]
        try:
            if not text:
                return
            if text.startswith("//"):
                self._say(text[1:])  # a message that begins with a slash
            elif is_command:
                self._command(_ALIASES.get(word, word), rest.strip())
            else:
                self._say(text)
        except SatchelError as error:
            say(wrapped(f"satchel: {error.on_command_line}"))
        except OSError as error:
            say(f"satchel: {error.filename or ''}: {error.strerror or error}")

    def _command(self, word: str, rest: str) -> None:
        if word not in COMMANDS:
            raise ConfigError(
                f"there is no command {word}",
                "/help lists them; a message that begins with a slash needs two.",
            )
        getattr(self, "_" + word[1:])(rest)

    def _say(self, text: str) -> None:
        message: dict[str, Any] = {"role": "user", "content": text}
        if self._shown:
            message["content"] = self._llm.pictures.message(text, len(self._shown))
            message["images"] = [str(path) for path in self._shown]
        self.messages.append(message)
        try:
            self._answer()
        except SatchelError:
            self.messages.pop()  # a turn that could not start must not be in the way of the next
            raise
        self._shown = []

    def _answer(self) -> None:
        images = [image for message in self.messages for image in message.get("images", ())]
        # The oldest half cannot be forgotten of a conversation with images.
        seen = {"images": images, "on_context_full": "stop"} if images else {}
        generation = self._llm.generate(self.messages, **{**self._options, **seen})
        try:
            if sys.stdout is not None and sys.stdout.isatty():
                _show(generation)
            else:
                stream(generation)
        except KeyboardInterrupt:
            say("")  # the answer so far stays in the conversation
        self.messages.append({"role": "assistant", "content": generation.text})
        self._turns.append(generation)
        say(summary(generation))

    def _last_user(self) -> int:
        """Where the last message of the person's is."""
        places = [at for at, message in enumerate(self.messages) if message["role"] == "user"]
        if not places:
            raise ConfigError("nothing has been said yet", "Say something first.")
        return places[-1]

    def _help(self, _: str) -> None:
        for name, (values, what) in COMMANDS.items():
            say(f"  {name + ' ' + values:<20} {what}")
        say(wrapped(f"  /set names: {', '.join(SETTINGS)}"))
        say(wrapped(_KEYS))

    def _set(self, text: str) -> None:
        name, _, value = text.partition(" ")
        if not name:
            shown = self._options["sampling"].changed(
                **{k: self._options.get(k) for k in ("temperature", "top_k", "top_p", "min_p")},
                repetition_penalty=self._options.get("repetition_penalty"),
            )
            say(f"sampling: {shown.describe()}")
            for key in ("max_new_tokens", "stop", "on_context_full", "lookahead", "seed"):
                say(f"{key}: {self._options.get(key)}")
            return
        name = name.replace("-", "_")
        if name not in SETTINGS:
            raise ConfigError(f"there is nothing {name!r} to set", f"Names: {', '.join(SETTINGS)}.")
        option, read = SETTINGS[name]
        try:
            chosen = read(value.strip())
        except ValueError:
            raise ConfigError(f"{value!r} is not a value for {name}") from None
        changed = self._options | {option: chosen}
        self._llm.generate("x", **changed)  # what cannot be is said now and not with the answer
        self._options = changed
        say(f"{name} is {value.strip()}.")

    def _system(self, text: str) -> None:
        if not text:
            first = self.messages[0] if self.messages else {"role": ""}
            says = first["content"] if first["role"] == "system" else "There is no system message."
            say(str(says))
            return
        self._set_system(text)
        say("The conversation starts over with this system message.")

    def _set_system(self, text: str) -> None:
        self.messages = [{"role": "system", "content": text}] if text else []

    def _reset(self, _: str) -> None:
        kept = [message for message in self.messages[:1] if message["role"] == "system"]
        self.messages = kept
        say("The conversation starts over.")

    def _regen(self, _: str) -> None:
        at = self._last_user()
        before = self.messages
        self.messages = self.messages[: at + 1]
        try:
            self._answer()
        except SatchelError:
            self.messages = before
            raise

    def _undo(self, _: str) -> None:
        at = self._last_user()
        say(f"Taken back: {str(self.messages[at]['content'])[:60]}")
        self.messages = self.messages[:at]

    def _save(self, name: str) -> None:
        path = _file(name)
        if path.exists():
            raise ConfigError(f"{path} exists", "Choose another name.")
        check_output(path, overwrite=False)
        document = {"messages": list(self.messages)}
        with atomic_write(path, overwrite=False) as file:
            file.write(json.dumps(document, ensure_ascii=False, indent=1).encode())
        say(f"{len(self.messages)} messages are in {path}.")

    def _load(self, name: str) -> None:
        path = _file(name)
        try:
            messages = json.loads(path.read_text(encoding="utf-8"))["messages"]
            good = isinstance(messages, list) and all(
                isinstance(m["role"], str)
                and (isinstance(m["content"], str) or m.get("images"))
                and all(isinstance(image, str) for image in m.get("images", ()))
                for m in messages
            )
        except (ValueError, KeyError, TypeError, RecursionError):
            good = False
        if not good:
            raise InputError(f"{path} is not a conversation that /save wrote")
        kept = ("role", "content", "images")
        self.messages = [{key: m[key] for key in kept if key in m} for m in messages]
        say(f"{len(self.messages)} messages from {path}.")

    def _stats(self, _: str) -> None:
        new = sum(turn.stats.new_tokens for turn in self._turns)
        seconds = sum(turn.stats.decode_s for turn in self._turns)
        speed = f", {new / seconds:.1f} tok/s" if seconds else ""
        held = (
            self._turns[-1].stats.prompt_tokens + self._turns[-1].stats.new_tokens
            if self._turns
            else 0
        )
        say(
            f"{len(self._turns)} answers, {new} tokens{speed}; about {held} of "
            f"{self._llm.session.context} tokens of context in use."
        )

    def _image(self, name: str) -> None:
        path = _file(name)
        if not self._llm.program.metadata.get("images"):
            model = self._llm.program.about.name or self._llm.program.path.name
            raise InputError(f"{model} reads text only", "It cannot be shown an image.")
        self._llm.pictures.frames(path)  # what cannot be read is said now
        self._shown.append(path)
        say(f"{path.name} goes with your next message.")

    def _exit(self, _: str) -> None:
        self.done = True


def _file(name: str) -> Path:
    if not name:
        raise ConfigError("a file name is missing")
    path = Path(name).expanduser()
    with suppress(ValueError, OSError):  # not quoted, or too long for a name
        # As terminals write the names of files that are dragged into them.
        words = shlex.split(name)
        if len(words) == 1 and not path.exists():
            return Path(words[0]).expanduser()
    return path


def _show(generation: Generation) -> None:
    """The answer on a terminal, as it comes."""

    def write(text: str) -> None:
        sys.stdout.write(text)

    lines = TerminalText(write, shutil.get_terminal_size().columns, wants_style())
    try:
        for piece in generation:
            lines.push(shown(piece))
            sys.stdout.flush()
    finally:
        lines.finish()
        sys.stdout.flush()
