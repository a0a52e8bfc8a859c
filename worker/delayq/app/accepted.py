"""Which JSON the arguments of a kind may be, for the HTTP API, which has no App. No I/O.

`schema` describes arguments to people and client generators. `accepts` is what the API refuses tasks by, so it has to
allow all that the App accepts: pydantic takes "7" for an int and 1 for a date, and a validator may take anything.
It is a small part of JSON Schema, made from pydantic's core schema. What is not listed here allows every value.
Not here: who reads it (delayq.api.published).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from delayq.app.arguments import VALIDATES, adapter_of, item_model

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable, Mapping, Sequence

    from delayq.app.kind import TaskKind

Node = dict[str, Any]

_SCALAR: Final = ["boolean", "number", "string"]
_TYPES: Final[Mapping[str, Node]] = {
    "none": {"type": ["null"]},
    "bool": {"type": _SCALAR},
    "int": {"type": _SCALAR, "pattern": "[0-9]"},
    "float": {"type": _SCALAR, "pattern": "[0-9]|[iI][nN][fF]|[nN][aA][nN]"},
    "bytes": {"type": ["string"]},
    "uuid": {"type": ["string"]},
    "url": {"type": ["string"]},
    "multi-host-url": {"type": ["string"]},
    **{each: {"type": _SCALAR} for each in ("decimal", "date", "datetime", "time", "timedelta")},
    **{each: {"type": ["array"]} for each in ("tuple", "deque")},
}
"""Of a core schema: what JSON it accepts at most. `pattern` is that of a string."""
_HARMLESS: Final = frozenset(
    (
        *("title", "extra_fields_behavior", "ser_json_bytes", "val_json_bytes", "strict", "frozen"),
        *("from_attributes", "populate_by_name", "validate_by_name", "validate_by_alias", "validate_default"),
        *("use_enum_values", "allow_inf_nan", "hide_input_in_errors", "str_max_length", "str_min_length"),
        *("regex_engine", "validate_assignment", "ser_json_timedelta", "cache_strings"),
    )
)
"""Settings of a model that do not make it accept more."""


class Described(NamedTuple):
    """The arguments of one kind; None: not known."""

    schema: Node | None
    accepts: Node | None


def described(kind: TaskKind[..., Any]) -> Described:
    """Return what is known of the arguments of a kind, or of its item, which is the whole payload of a batch's task."""
    parameters, batch = kind.parameters, kind.policy.batch is not None
    if not VALIDATES:
        return Described(*[None if batch else _by_name(parameters)] * 2)
    if batch:
        model = item_model(parameters[0].annotation)
        return Described(
            _or_none(model.model_json_schema), _or_none(lambda: _accepts(model.__pydantic_core_schema__))
        )
    adapter = adapter_of(parameters)
    return Described(_or_none(adapter.json_schema), _or_none(lambda: _accepts(adapter.core_schema)))


def _or_none(make: Callable[[], Node]) -> Node | None:
    """Return what is made; None if pydantic, or a user's type that describes itself, cannot."""
    try:
        return make()
    except Exception:  # noqa: BLE001 -- of users' code, or of a version of pydantic that is not known
        return None


def _by_name(parameters: Sequence[inspect.Parameter]) -> Node:
    """Without pydantic, only the names are checked."""
    return _object(
        {each.name: {} for each in parameters},
        [each.name for each in parameters if each.default is each.empty],
        closed=True,
    )


def _object(properties: Node, required: list[str], *, closed: bool) -> Node:
    return {
        "type": ["object"],
        **({"properties": properties} if properties else {}),
        **({"required": required} if required else {}),
        **({"additionalProperties": False} if closed else {}),
    }


def _accepts(schema: Any) -> Node:  # noqa: ANN401 -- pydantic_core's CoreSchema, a union of 60 TypedDicts
    walk = _Walk()
    found = walk.node(schema)
    return {**found, "$defs": walk.definitions} if walk.definitions else found


class _Walk:
    """Goes through a core schema."""

    def __init__(self) -> None:
        self.definitions: dict[str, Node] = {}
        self._names: dict[str, str] = {}

    def node(self, schema: Any) -> Node:  # noqa: ANN401, C901, PLR0911, PLR0912 -- one for each type
        """Return what accepts at least what this schema does."""
        if not _HARMLESS.issuperset(schema.get("config") or ()):
            return {}
        kind = schema["type"]
        match kind:
            case "str":
                return {"type": _SCALAR if schema.get("coerce_numbers_to_str") else ["string"]}
            case "list" | "set" | "frozenset":
                return {"type": ["array"], **self._inner("items", schema.get("items_schema"))}
            case "dict":
                return {
                    "type": ["object"],
                    **self._inner("additionalProperties", schema.get("values_schema")),
                }
            case "literal" if all(type(each) is str for each in schema["expected"]):
                return {"enum": [*schema["expected"]]}
            case "enum" if _is_of_texts(schema):
                return {"enum": [each.value for each in schema["members"]]}
            case "nullable":
                return {"anyOf": [{"type": ["null"]}, self.node(schema["schema"])]}
            case "union":
                choices = [each[0] if isinstance(each, tuple) else each for each in schema["choices"]]
                return {"anyOf": [self.node(each) for each in choices]}
            case "tagged-union":
                return {"anyOf": [self.node(each) for each in schema["choices"].values()]}
            case "default" if schema.get("on_error", "raise") == "raise":
                return self.node(schema["schema"])
            case "function-after":
                return self.node(schema["schema"])
            case "model" if not schema.get("custom_init"):
                return self.node(schema["schema"])
            case "typed-dict" | "model-fields":
                return self._fields(schema["fields"], schema)
            case "dataclass":
                return self.node(schema["schema"])
            case "dataclass-args":
                return self._fields({each["name"]: each for each in schema["fields"]}, schema)
            case "definitions":
                return self._definitions(schema)
            case "definition-ref":
                name = self._names.get(schema["schema_ref"])
                return {} if name is None else {"$ref": f"#/$defs/{name}"}
            case _:
                return dict(_TYPES.get(kind, {}))

    def _inner(self, name: str, schema: Any) -> Node:  # noqa: ANN401 -- as above
        found = {} if schema is None else self.node(schema)
        return {name: found} if found else {}

    def _fields(self, fields: Mapping[str, Any], schema: Any) -> Node:  # noqa: ANN401 -- as above
        if any(each.get("validation_alias") or not each.get("init", True) for each in fields.values()):
            return {"type": ["object"]}
        usual = schema.get("total", True)
        required = [
            name
            for name, each in fields.items()
            if each.get("required", usual) and not _has_default(each["schema"])
        ]
        found = {name: self.node(each["schema"]) for name, each in fields.items()}
        extra = schema.get("extra_behavior") or (schema.get("config") or {}).get("extra_fields_behavior")
        return _object(found, required, closed=extra == "forbid")

    def _definitions(self, schema: Any) -> Node:  # noqa: ANN401 -- as above
        self._names |= {each["ref"]: f"d{at}" for at, each in enumerate(schema["definitions"])}
        for each in schema["definitions"]:
            self.definitions[self._names[each["ref"]]] = self.node(each)
        return self.node(schema["schema"])


def _has_default(schema: Any) -> bool:  # noqa: ANN401 -- as above
    while isinstance(schema, dict):
        if schema.get("type") == "default":
            return True
        schema = schema.get("schema")
    return False


def _is_of_texts(schema: Any) -> bool:  # noqa: ANN401 -- as above
    """Whether an enumeration takes the values of its members only, and these are texts."""
    own = schema["cls"]._missing_.__func__ is not Enum._missing_.__func__  # type: ignore[attr-defined]
    return (
        not own and not schema.get("missing") and all(type(each.value) is str for each in schema["members"])
    )
