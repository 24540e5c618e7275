"""JSON schemas of the tools' types, and strict reading of a model's arguments."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from crystal_node.base.decoding import from_fields
from crystal_node.base.errors import UsageError
from crystal_node.capture.json_values import as_object
from crystal_node.search.finding.schema_errors import error_text

_T = TypeVar("_T")
_REFERENCES = "#/$defs/{name}"


def schema_of(kind: type) -> dict[str, object]:
    """The schema of a struct, an object at its root as the protocol wants it, with what it refers to in ``$defs``."""
    (root,), definitions = msgspec.json.schema_components([kind], ref_template=_REFERENCES)
    name = root["$ref"].rsplit("/", 1)[1]
    schema: dict[str, object] = dict(definitions.pop(name))
    schema.pop("title", None)
    schema.pop("description", None)
    if definitions:
        schema["$defs"] = definitions
    return schema


def told_schema(kind: type, told: Mapping[str, str]) -> dict[str, object]:
    """The schema as a model is given it, with each conversation: names, types, choices, and defaults that say something.

    ``told``: what its name does not tell of an argument. Limits and patterns are left out: they hold all the same, and a call
    that breaks one is answered with it.
    """
    whole = schema_of(kind)
    definitions = _fields(whole.get("$defs"))
    fields: dict[str, object] = {}
    for name, schema in _fields(whole["properties"]).items():
        known = dict(schema)
        for choice in (*known.pop("anyOf", ()), known):
            reference = choice.get("$ref", "").rpartition("/")[2]
            known |= definitions.get(reference, {}) | {
                key: value for key, value in choice.items() if key != "default"
            }
        field: dict[str, Any] = {key: known[key] for key in ("type", "enum") if key in known}
        if "enum" in field:
            field["type"] = "string"
        if field["type"] == "array":
            field["items"] = {"type": "string"}
        if schema.get("default"):
            field["default"] = schema["default"]
        fields[name] = field | ({"description": told[name]} if name in told else {})
    required = whole.get("required")
    return {"type": "object", "properties": fields} | ({"required": required} if required else {})


def _fields(found: object) -> dict[str, dict[str, Any]]:
    return as_object(found)


def read_as(kind: type[_T], given: object) -> _T:
    """A model's arguments as the type that they must have.

    Raises:
        Usage: it has another form. The message names the field and never repeats its value.
    """
    try:
        return from_fields(given, kind)
    except msgspec.ValidationError as error:
        raise UsageError(
            error_text(error, kind, whole="what is given"),
            hint="The tool's input schema says what each argument must be. Correct the call and send it again.",
        ) from None
