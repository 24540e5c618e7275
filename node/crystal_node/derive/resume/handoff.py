"""What another tool has to know to go on with a session, read from its copy without a model.

    goal        what the person asked first
    decisions   sentences of both that settle something, the latest
    files       what the tool wrote to, the latest last
    failed      calls that ended in an error, the latest
    open        what the tool's own list of tasks still holds, and what the last answer says is left
    turns       the last words of both, verbatim

What of it has room is the reader's business (``surfaces.mcp.handoff_text``). Texts are cleaned as capture does, credentials are
blanked by today's rules, and what stands between private marks is left out. Decisions and open points are
found by words of four languages.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crystal_core.llm.port import Llm, LlmError, Prompt
from crystal_node.capture.context import Context
from crystal_node.capture.json_values import as_array, as_object, as_text, is_object, parse_json
from crystal_node.capture.line_adapter import LineAdapter, LinePosition
from crystal_node.capture.messages import TranscriptMessage
from crystal_node.capture.private_words import without_private
from crystal_node.capture.redaction import redact
from crystal_node.derive.artefacts.model_summaries import SECONDS_MAX, SUMMARISE, TOKENS_MAX

TURNS_MAX = 40
TEXT_CHARS_MAX = 8_000
"""Of one message; of a longer one the end counts."""
FACTS_MAX = 12
FACT_CHARS_MAX = 300
FILES_MAX = 40
LINE_BYTES_MAX = 8 * 1024 * 1024
EXCERPT_CHARS = 24_000

_SENTENCE = re.compile(r"[^.!?\n]{8,300}+(?:[.!?](?=\s|$)|\n|$)")
_DECIDED = {
    "English": r"""decid\w+|let'?s|we(?:'ll| will)|instead of|rather than|agreed|must(?: not|n't)?|never|always|from now on
        |going with|go with|chose|chosen|settled|stick (?:to|with)""",
    "German": r"""entschied\w*|entscheid\w+|beschlossen|geeinigt|einigen uns|festgelegt|gewählt|lass(?:t)? uns
        |wir (?:nehmen|verwenden|benutzen|behalten|bleiben|machen|werden)|bleiben? (?:es )?bei|(?:an)?statt|anstelle
        |stattdessen|nie(?:mals)?|(?<!noch )immer(?! noch| wieder)|ab (?:jetzt|sofort|nun)|von nun an|m(?:uss|üssen)
        |d(?:arf|ürfen) (?:nie|nicht)""",
    "French": r"""décid\w+|choisi\w*|convenu\w*|retenu\w*|plutôt qu(?:e|['’])|jamais|toujours|désormais|dorénavant
        |on (?:va|garde|prend|utilise\w*|reste)|nous (?:allons|gardons|prenons|utilis\w+|restons)|au lieu d(?:e|u|['’])
        |à partir de maintenant|il (?:ne )?faut|d(?:oit|oivent)""",
    "Spanish": r"""acord(?:amos|ado|ó)|eleg(?:imos|ido|í)|escog(?:imos|ido)|vamos a|usaremos|usamos|nos quedamos con
        |quedamos en|en (?:vez|lugar) de|nunca|jamás|siempre|a partir de ahora|de ahora en adelante|hay que|debe(?:mos|n)?""",
}
"""What settles something."""
_OPEN = {
    "English": r"""(?-i:TODO)|todo(?=:)|still (?:to|open|missing|fails?)|remain\w*|next step\w*|not yet|left to do
        |open question\w*|follow-?up""",
    "German": r"""noch (?:offen|nicht|zu tun|zu \w+en)|fehl(?:t|en) noch|nächste[rn]? schritte?|offene fragen?
        |ste(?:ht|hen) (?:noch )?aus|schl(?:ägt|agen) (?:noch |immer ){1,2}fehl|bleib(?:t|en) noch|übrig""",
    "French": r"""reste(?:nt)?|à faire|pas encore|prochaines? étapes?|questions? ouvertes?
        |(?:échoue|manque)(?:nt)? (?:encore|toujours)""",
    "Spanish": r"""pendientes?|faltan?|por hacer|todavía|aún|próximos? pasos?|quedan?|siguen? fallando
        |preguntas? abiertas?""",
}
"""What says that something is left to do."""


def _any_of(words: dict[str, str]) -> re.Pattern[str]:
    each = re.sub(r"\s*\n\s*", "", "|".join(words.values()))
    return re.compile(rf"\b(?:{each})\b", re.IGNORECASE)


_DECIDES, _LEFT = _any_of(_DECIDED), _any_of(_OPEN)
_WRITERS = re.compile(
    r"(?:multi|notebook)?edit(?:_file)?|write(?:_file)?|replace|create_file|str_replace\w*", re.IGNORECASE
)
_PATCHES = re.compile(r"\*\*\* (?:Add|Update|Delete) File: ([^\n]{1,500})")
_EXIT = re.compile(r"(?:exited with code|Exit Code:|exit_code\W{1,3})\s*(-?[1-9]\d{0,9})")
_TASK_LISTS = ("todowrite", "update_plan", "write_todos", "todo_write")
_FILE_KEYS = ("file_path", "filePath", "path", "absolute_path", "notebook_path", "filename")


@dataclass(slots=True)
class Handoff:
    """See the module. ``turns``: role and text, the latest last. ``summary``: a language model's, "" if none was asked."""

    goal: str = ""
    decisions: deque[str] = field(default_factory=lambda: deque(maxlen=FACTS_MAX))
    files: dict[str, None] = field(default_factory=dict[str, None])
    failed: deque[str] = field(default_factory=lambda: deque(maxlen=FACTS_MAX))
    tasks: list[str] = field(default_factory=list[str])
    turns: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=TURNS_MAX))
    summary: str = ""

    @property
    def open(self) -> list[str]:
        """What is left to do."""
        last = next((text for role, text in reversed(self.turns) if role == "assistant"), "")
        return [*self.tasks, *(found for found in _sentences(last) if _LEFT.search(found))][:FACTS_MAX]


def handoff_of(adapter: LineAdapter, lines: Iterable[bytes]) -> Handoff:
    """Reads a session once. A line that is no JSON, or too long, is passed over."""
    found = Handoff()
    context = Context()
    calls: dict[str, str] = {}
    for line in lines:
        if len(line) > LINE_BYTES_MAX:
            continue
        for said in adapter.said(line, context, LinePosition(Path("session.jsonl"), 0)):
            if isinstance(said, TranscriptMessage) and not said.subagent:
                _take_words(found, said)
        try:
            record = parse_json(line)
        except ValueError:
            continue
        if is_object(record) and record.get("isSidechain") is not True:
            for each in _calls(record):
                _take_call(found, each, calls)
    return found


async def summarised(llm: Llm, found: Handoff) -> str:
    """A language model's summary; "" if it does not answer."""
    words = "\n\n".join(f"{role}: {text}" for role, text in found.turns)
    excerpt = f"Goal: {found.goal}\n\n{words[-EXCERPT_CHARS:]}"
    try:
        answer = await llm.complete(
            Prompt(SUMMARISE, excerpt), tokens_max=TOKENS_MAX, seconds_max=SECONDS_MAX
        )
    except LlmError:
        return ""
    finally:
        await llm.aclose()
    return _clean(answer.text.strip())


def _take_words(found: Handoff, said: TranscriptMessage) -> None:
    for role, text in said.texts.items():
        if role not in ("user", "assistant"):
            continue
        words = _clean(without_private(text) if role == "user" else text)
        if not words:
            continue
        if role == "user" and not found.goal:
            found.goal = words[:TEXT_CHARS_MAX]
        found.turns.append((role, words[-TEXT_CHARS_MAX:]))
        found.decisions.extend(each for each in _sentences(words[-TEXT_CHARS_MAX:]) if _DECIDES.search(each))


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a tool, or its result: ``error`` is what it ended with, "" if it succeeded."""

    id: str
    name: str = ""
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    patch: str = ""
    error: str = ""


def _take_call(found: Handoff, call: _Call, calls: dict[str, str]) -> None:
    if call.name:
        calls[call.id] = _fact(f"{call.name} {_main_argument(call.arguments)}")
        files = _PATCHES.findall(call.patch)
        if _WRITERS.fullmatch(call.name):
            files += [text for key in _FILE_KEYS if (text := as_text(call.arguments.get(key)))][:1]
        for file in files:
            found.files.pop(_fact(file), None)
            found.files[_fact(file)] = None
            if len(found.files) > FILES_MAX:
                found.files.pop(next(iter(found.files)))
        if call.name.lower() in _TASK_LISTS:
            found.tasks = list(_tasks(call.arguments))[:FACTS_MAX]
    if call.error:
        found.failed.append(_fact(f"{calls.get(call.id, 'a call')}: {call.error}"))


def _tasks(arguments: dict[str, Any]) -> Iterator[str]:
    for name in ("todos", "plan"):
        for each in as_array(arguments.get(name)):
            task = as_object(each)
            text = next(
                (found for key in ("content", "step", "description") if (found := as_text(task.get(key)))), ""
            )
            if text and task.get("status") not in ("completed", "done", "cancelled"):
                yield _fact(text)


def _calls(record: dict[str, Any]) -> Iterator[_Call]:
    """The calls and results of one record of any of the tools."""
    payload = as_object(record.get("payload"))
    kind = payload.get("type")
    if kind in ("function_call", "custom_tool_call"):
        text = as_text(payload.get("arguments")) or as_text(payload.get("input")) or ""
        yield _Call(
            _id(payload.get("call_id")),
            as_text(payload.get("name")) or "call",
            _arguments(text),
            text.replace("\\n", "\n"),
        )
    elif kind in ("function_call_output", "custom_tool_call_output"):
        output = payload.get("output")
        text = as_text(output) or as_text(as_object(output).get("content")) or ""
        if _EXIT.search(text):
            yield _Call(_id(payload.get("call_id")), error=text.rpartition("Output:")[2].strip() or text)
    message = as_object(record.get("message"))
    for block in [
        *map(as_object, as_array(message.get("content"))),
        *map(as_object, as_array(message.get("parts"))),
    ]:
        yield from _of_block(block)
    if message.get("role") == "toolResult" and message.get("isError") is True:
        yield _Call(_id(message.get("toolCallId")), error=_text_of(message.get("content")))
    result = as_object(record.get("toolCallResult"))
    if result.get("status") == "error":
        yield _Call(_id(result.get("callId")), error=_text_of(result.get("resultDisplay")) or "error")
    for each in map(as_object, as_array(record.get("toolCalls"))):
        identity = _id(each.get("id"))
        yield _Call(identity, as_text(each.get("name")) or "call", as_object(each.get("args")))
        if each.get("status") == "error":
            yield _Call(identity, error=_text_of(each.get("resultDisplay")) or "error")


def _of_block(block: dict[str, Any]) -> Iterator[_Call]:
    called = as_object(block.get("functionCall"))
    if block.get("type") == "tool_use":
        yield _Call(_id(block.get("id")), as_text(block.get("name")) or "call", as_object(block.get("input")))
    elif block.get("type") == "toolCall":
        yield _Call(
            _id(block.get("id")), as_text(block.get("name")) or "call", as_object(block.get("arguments"))
        )
    elif block.get("type") == "tool_result" and block.get("is_error") is True:
        yield _Call(_id(block.get("tool_use_id")), error=_text_of(block.get("content")) or "error")
    elif called:
        yield _Call(
            _id(called.get("id")), as_text(called.get("name")) or "call", as_object(called.get("args"))
        )


def _arguments(text: str) -> dict[str, Any]:
    try:
        return as_object(parse_json(text.encode()))
    except ValueError:
        return {}


def _main_argument(arguments: dict[str, Any]) -> str:
    for key in ("command", "cmd", *_FILE_KEYS, "pattern", "query", "url", "description"):
        value = arguments.get(key)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value:
            return " ".join(str(part) for part in value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return ""


def _text_of(value: object) -> str:
    text = as_text(value)
    if text is not None:
        return text
    return " ".join(found for each in as_array(value) if (found := as_text(as_object(each).get("text"))))


def _id(value: object) -> str:
    return as_text(value) or ""


def _sentences(text: str) -> Iterator[str]:
    for found in _SENTENCE.finditer(text):
        yield _fact(found[0])


def _fact(text: str) -> str:
    flat = " ".join(_clean(text[: FACT_CHARS_MAX * 4]).split())
    return flat if len(flat) <= FACT_CHARS_MAX else flat[: FACT_CHARS_MAX - 1] + "…"


def _clean(text: str) -> str:
    return redact(text).text
