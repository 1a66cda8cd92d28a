"""Recorded replies: where they lie, which conversation they belong to, and how they are read.

A recording is one conversation's replies, in order. It is one file:

- `*.jsonl`, a reply a line: {"content": str | null, "tool_calls": [...], "reasoning_content": str,
  "finish_reason": str, "usage": {...}}, all optional. A tool call is {"id", "name", "arguments"} or OpenAI's
  {"id", "function": {"name", "arguments"}}; arguments are JSON text or an object. Usage has our names or OpenAI's.
  A first line {"match": TEXT} says which conversations it serves: those whose first user message contains TEXT.
- `*.json`: a list of such replies, or {"match": TEXT, "replies": [...]}.
- a trajectory of ours (`trajectories/TASK.N.jsonl`): its steps' `assistant_content` are the replies.

A folder holds one recording per task, each with a `match` or a trajectory; of a run's folder its `trajectories` are
taken. A trajectory serves the conversations that open with its own prompt, or that have all the lines of it that set it
apart from the other recordings (a prompt may name the machine, say, and a replay may run on another). The longest
match wins. Several recordings of one prompt (attempts of a task) are taken in turn.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from ...domain.errors import ConfigError
from ...domain.local_path import local_path
from ...domain.model import Message, ToolCall, Usage
from ...domain.value import Value
from .openai_wire import arguments_text, read_usage

PACKAGE = "package:"
_SUFFIXES = (".jsonl", ".json")
_SET_ASIDE = re.compile(r"\.try-\d+\.jsonl$")
"""A trajectory of a try that was followed by another."""
_NOTHING_RECORDED: frozenset[str] = frozenset()


class Recorded(NamedTuple):
    """One reply of a recording."""

    message: Message
    usage: Usage
    finish_reason: str


class Recording(NamedTuple):
    """A file of replies, and what tells its conversations: a text (`match`), or the prompt it was recorded under."""

    name: str
    source: Traversable
    match: str | None = None
    prompt: str | None = None

    def replies(self) -> tuple[Recorded, ...]:
        """All its replies, in order.

        Raises:
            ConfigError: the file is not as this module's docstring says.
        """
        return tuple(_reply(entry, turn, self.name) for turn, entry in enumerate(_replies(self.source), 1))


def find_recordings(path: str) -> tuple[Recording, ...]:
    """The recordings at `path`: a file, a folder, a run's folder, or `package:some.package/folder` for package data.

    Raises:
        ConfigError: nothing is there, or it cannot be told which recording is whose.
    """
    place = _place(path)
    if place.is_file():
        return (Recording(place.name, place),)
    if not place.is_dir():
        raise ConfigError(
            f"no recording at {path!r}", hint="give a file of replies, a folder of them, or a run's folder"
        )
    trajectories = place.joinpath("trajectories")
    folder = trajectories if trajectories.is_dir() else place
    sources = sorted((item for item in folder.iterdir() if _is_recording(item.name)), key=_natural_order)
    if not sources:
        raise ConfigError(f"no recording (*.jsonl, *.json) in {path!r}")
    return tuple(_labelled(source) for source in sources)


def _place(path: str) -> Traversable:
    if not path.startswith(PACKAGE):
        return local_path(path)
    package, *inner = path.removeprefix(PACKAGE).split("/")
    try:
        return files(package).joinpath(*filter(None, inner))
    except (ModuleNotFoundError, ValueError) as exc:
        raise ConfigError(f"no package {package!r} to take recordings from") from exc


def _is_recording(name: str) -> bool:
    return name.endswith(_SUFFIXES) and not name.startswith(".") and not _SET_ASIDE.search(name)


def _natural_order(source: Traversable) -> tuple[str, int, str]:
    """By task, then attempt: TASK.2 before TASK.10."""
    stem = source.name.rpartition(".")[0]
    task, _, attempt = stem.rpartition(".")
    return (task, int(attempt), "") if attempt.isdecimal() else (stem, 0, source.name)


def _labelled(source: Traversable) -> Recording:
    first = next(_entries(source), {})
    match, prompt = first.get("match"), first.get("user_content")
    if isinstance(match, str) and match:
        return Recording(source.name, source, match=match)
    if isinstance(prompt, str) and prompt:
        return Recording(source.name, source, prompt=prompt)
    raise ConfigError(
        f"{source.name}: it does not say whose replies it holds",
        hint='begin it with a line {"match": "words of the task"}, or give the file itself to serve every conversation',
    )


class Recordings:
    """All recordings of a place, and what tells the conversations of each from those of the others."""

    def __init__(self, recordings: Sequence[Recording]) -> None:
        self.all = tuple(recordings)
        lines = [_lines(recording.prompt) for recording in self.all]
        prompts = [own for own, recording in zip(lines, self.all, strict=True) if recording.prompt is not None]
        common = frozenset.intersection(*prompts) if prompts else _NOTHING_RECORDED
        self._distinctive = [own - common for own in lines]

    def serving(self, opening: str) -> list[Recording]:
        """Those that serve a conversation whose first user message is `opening`; a lone file serves every one."""
        if len(self.all) == 1 and self.all[0].match is None and self.all[0].prompt is None:
            return [*self.all]
        exact = [recording for recording in self.all if recording.prompt == opening]
        if exact:
            return exact
        lines = _lines(opening)
        matches = [
            (_matched(recording, distinctive, opening, lines), recording)
            for recording, distinctive in zip(self.all, self._distinctive, strict=True)
        ]
        best = max((length for length, _ in matches), default=0)
        return [recording for length, recording in matches if length == best and length > 0]


def _matched(recording: Recording, distinctive: frozenset[str], opening: str, lines: frozenset[str]) -> int:
    """Characters of `opening` that are this recording's own, 0 when it is not the one."""
    if recording.match is not None:
        return len(recording.match) if recording.match in opening else 0
    return sum(map(len, distinctive)) if distinctive <= lines else 0


def _lines(text: str | None) -> frozenset[str]:
    return frozenset(line.strip() for line in (text or "").splitlines() if line.strip())


def _replies(source: Traversable) -> Iterator[Mapping[str, Any]]:
    for entry in _entries(source):
        if "match" not in entry:
            yield entry


def _entries(source: Traversable) -> Iterator[Mapping[str, Any]]:
    """The objects of a file; the `match` of either form comes first, as {"match": ...}."""
    if source.name.endswith(".json"):
        yield from _document_entries(source)
        return
    with source.open("r", encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                entry = _parsed_line(line, source.name, number)
                if entry is None:
                    return
                yield entry


def _parsed_line(line: str, name: str, number: int) -> Mapping[str, Any] | None:
    """The object in a line; None for a last line that was torn when its writer died."""
    try:
        entry = json.loads(line)
    except ValueError as exc:
        if not line.endswith("\n"):
            return None
        raise ConfigError(f"{name}, line {number}: not JSON: {exc}") from exc
    except RecursionError as exc:
        raise ConfigError(f"{name}, line {number}: nested too deeply") from exc
    return _object(entry, f"{name}, line {number}")


def _document_entries(source: Traversable) -> Iterator[Mapping[str, Any]]:
    try:
        document = json.loads(source.read_text(encoding="utf-8"))
    except ValueError as exc:
        raise ConfigError(f"{source.name}: not JSON: {exc}") from exc
    except RecursionError as exc:
        raise ConfigError(f"{source.name}: nested too deeply") from exc
    replies = document
    if isinstance(document, dict):
        replies = document.get("replies")
        if "match" in document:
            yield {"match": document["match"]}
    if not isinstance(replies, list):
        raise ConfigError(f"{source.name}: no list of replies", hint='give [...] or {"match": ..., "replies": [...]}')
    for number, entry in enumerate(replies, 1):
        yield _object(entry, f"{source.name}, reply {number}")


def _object(entry: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(entry, dict):
        raise ConfigError(f"{where}: not a JSON object")
    return entry


class _Reply(Value):
    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: tuple[dict[str, Any], ...] | None = None
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None


def _reply(entry: Mapping[str, Any], turn: int, name: str) -> Recorded:
    try:
        return _recorded(_Reply.model_validate(_of_step(entry) if "step_id" in entry else entry), turn)
    except ValidationError as exc:
        first = exc.errors(include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{name}, reply {turn}: {field}: {first['msg']}") from exc


def _of_step(step: Mapping[str, Any]) -> dict[str, Any]:
    """The reply in a trajectory's step; what else a step holds, now or in later versions, is no matter here."""
    said, metric = _part(step, "assistant_content"), _part(step, "metric")
    usage = {"input_tokens": metric.get("prompt_tokens_len"), "output_tokens": metric.get("completion_tokens_len")}
    return {name: said[name] for name in _Reply.model_fields if name in said} | {"usage": usage}


def _part(step: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = step.get(name)
    return part if isinstance(part, dict) else {}


def _recorded(reply: _Reply, turn: int) -> Recorded:
    message = Message(
        role="assistant",
        content=reply.content or "",
        reasoning_content=reply.reasoning_content,
        tool_calls=tuple(_call(call, f"call_{turn}_{number}") for number, call in enumerate(reply.tool_calls or ())),
    )
    told = reply.usage or {}
    usage = read_usage(told) if "prompt_tokens" in told else Usage.model_validate(told)
    return Recorded(message, usage, reply.finish_reason or ("tool_calls" if message.tool_calls else "stop"))


def _call(call: dict[str, Any], made_id: str) -> ToolCall:
    inner = call.get("function")
    function = inner if isinstance(inner, dict) else call
    fields = {"id": call.get("id") or made_id, "name": function.get("name")}
    return ToolCall.model_validate(fields | {"arguments": arguments_text(function)})
