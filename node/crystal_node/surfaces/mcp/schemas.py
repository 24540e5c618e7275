"""JSON schemas of the tools' types, and strict reading of a model's arguments."""

from typing import TypeVar

import msgspec

from crystal_node.base.decoding import from_fields
from crystal_node.base.errors import UsageError
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
