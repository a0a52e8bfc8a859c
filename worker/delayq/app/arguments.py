"""The arguments of a kind: from a call to JSON when it is scheduled, and back when it runs. No I/O.

A payload is a JSON object of arguments by name. With pydantic, every annotation that it can encode as JSON is allowed,
and arguments are validated on both sides; without it, only annotations of JSON values are allowed.
"""

from __future__ import annotations

import inspect
import json
import types
import typing
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final, Protocol

from delayq.protocol.envelope import encode_json

try:
    import pydantic
    import pydantic_core
    import typing_extensions
except ImportError:  # the optional extra delayq[pydantic]
    VALIDATES = False
else:
    VALIDATES = not pydantic.VERSION.startswith("1.")

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

JSON_TYPES: Final = (int, float, str, bool, types.NoneType, list, dict, Any, object)
POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

ITEM: Final = "item"
_BEFORE_ITEM: Final = b'{"item":'
_OF_ARGUMENTS: Final = {"missing": "missing argument", "extra_forbidden": "unknown argument"}
_BYTES: Final[Any] = {"ser_json_bytes": "base64", "val_json_bytes": "base64"}


class InvalidArguments(ValueError):
    """The arguments do not fit the function of the kind."""


class Arguments(Protocol):
    """Encodes and decodes the arguments of one kind."""

    def encode(self, values: Mapping[str, Any]) -> bytes:
        """Return the payload; InvalidArguments when a value does not fit or would not be the same when it runs."""

    def decode(self, payload: bytes) -> dict[str, Any]:
        """Return the arguments by name; InvalidArguments when the payload does not fit."""


def parameters_of(
    function: Callable[..., object], where: str, *, batch: bool = False
) -> tuple[list[inspect.Parameter], bool]:
    """Return the parameters that a task has to give, and whether a Context precedes them.

    With `batch`, the function takes a list of items, and a task gives one item. TypeError, which begins with `where`,
    when the function cannot be a kind: its arguments travel by name.
    """
    try:
        signature = inspect.signature(function, eval_str=True)
    except (NameError, TypeError, ValueError) as error:
        raise TypeError(f"{where}: cannot read its signature: {error}") from error
    for part in (function, function.__call__):  # type: ignore[operator]
        if inspect.isgeneratorfunction(part) or inspect.isasyncgenfunction(part):
            raise TypeError(f"{where}: a call of a generator function does not run it; remove its yield")
    found = list(signature.parameters.values())
    if found and found[0].name in ("self", "cls") and _is_in_class(function):
        raise TypeError(
            f"{where}: it is a method, and a task has no {found[0].name}; move it out of its class"
        )
    of_batch = _of_batch(found[0]) if found and found[0].kind in POSITIONAL else None
    context = of_batch is not None
    if context and of_batch is not batch:
        expected = "a BatchContext" if batch else "a Context"
        raise TypeError(
            f"{where}: with{'' if batch else 'out'} batch=, the first parameter can be {expected}"
        )
    found = found[1:] if context else found
    if batch:
        return [_item_of(found, where)], context
    for each in found:
        if each.kind not in BY_NAME:
            what = str(each) if each.kind is not each.POSITIONAL_ONLY else f"{each.name}, positional-only,"
            raise TypeError(f"{where}: parameter {what} cannot be given by name; payloads are JSON objects")
        if _of_batch(each) is not None:
            problem = "a Context has to be the first parameter, and positional"
            raise TypeError(f"{where}: parameter {each.name}: {problem}")
    return found, context


def _item_of(parameters: list[inspect.Parameter], where: str) -> inspect.Parameter:
    """Return the parameter of a task: an item of the only parameter of a batch's function."""
    one = parameters[0] if len(parameters) == 1 else None
    if one is None or one.kind not in POSITIONAL or typing.get_origin(one.annotation) is not list:
        expected = "expected one parameter annotated list[…], a BatchContext may precede it"
        raise TypeError(f"{where}: a function with batch= gets its items as one list: {expected}")
    if one.default is not one.empty:
        raise TypeError(f"{where}: {one.name} cannot have a default: a batch has at least one item")
    return inspect.Parameter(ITEM, one.POSITIONAL_ONLY, annotation=typing.get_args(one.annotation)[0])


def _of_batch(parameter: inspect.Parameter) -> bool | None:
    """Return whether the parameter is a BatchContext (True) or a Context (False); None if it is neither."""
    found = getattr(parameter.annotation, "_of_batch", None)
    return found if isinstance(found, bool) else None


def _is_in_class(function: Callable[..., object]) -> bool:
    around = getattr(function, "__qualname__", "").rpartition(".")[0]
    return around != "" and not around.endswith("<locals>")


def arguments_of(parameters: Sequence[inspect.Parameter], where: str) -> Arguments:
    """Return the encoder of these parameters; TypeError when one of them, or its default, cannot be JSON."""
    encoder = _Validated if VALIDATES else _Plain
    changeable = dict[str, Any]()
    for each in parameters:
        if each.default is not each.empty:
            alone = encoder([each.replace(default=each.empty)], where)
            try:
                alone.encode({each.name: each.default})
            except InvalidArguments as error:
                problem = f"the default of {each.name} does not fit its annotation"
                raise TypeError(f"{where}: {problem}: {error}") from error
            if not _is_hashable(each.default):  # what compares by identity was refused by `encode`
                changeable[each.name] = each.default
    made = encoder(parameters, where)
    return _Copying(made, changeable) if changeable else made


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


class _Copying:
    """Arguments of a function with defaults that a run could change, such as []: each run gets its own."""

    def __init__(self, arguments: Arguments, defaults: Mapping[str, Any]) -> None:
        self.encode, self._decode, self._defaults = arguments.encode, arguments.decode, defaults

    def decode(self, payload: bytes) -> dict[str, Any]:
        found = self._decode(payload)
        own = {name: deepcopy(each) for name, each in self._defaults.items() if found[name] is each}
        return found | own


class Item:
    """The item of a batch's task: its payload is the item itself, not an object of arguments by name."""

    def __init__(self, parameter: inspect.Parameter, where: str) -> None:
        """`parameter` is named `item`. TypeError when it cannot be JSON."""
        self._arguments = arguments_of([parameter], where)
        self._decode = _item_decoder(parameter.annotation) if VALIDATES else json.loads

    def encode(self, values: Mapping[str, Any]) -> bytes:
        """Return the item's JSON."""
        return self._arguments.encode(values)[len(_BEFORE_ITEM) : -1]

    def decode(self, payload: bytes) -> dict[str, Any]:
        """Return the item by the name `item`."""
        try:
            return {ITEM: self._decode(payload)}
        except (ValueError, RecursionError) as error:
            raise InvalidArguments(_said(error, ITEM) if VALIDATES else f"not JSON: {error}") from None


class _Plain:
    """Arguments that are JSON values; their types are not checked."""

    def __init__(self, parameters: Sequence[inspect.Parameter], where: str) -> None:
        for each in parameters:
            if each.annotation is not each.empty and not _is_json(each.annotation):
                name = getattr(each.annotation, "__name__", each.annotation)
                raise TypeError(
                    f"{where}: parameter {each.name}: {name} is no JSON type; install delayq[pydantic] for it"
                )
        self._names = {each.name for each in parameters}
        self._defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
        self._required = self._names - self._defaults.keys()

    def encode(self, values: Mapping[str, Any]) -> bytes:
        try:
            text = encode_json(dict(values)).encode()
            same = bool(json.loads(text) == values)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidArguments(str(error)) from error
        if not same:  # a tuple, or a mapping with keys that are no strings
            raise InvalidArguments("a value would not be the same after JSON")
        return text

    def decode(self, payload: bytes) -> dict[str, Any]:
        try:
            found = json.loads(payload)
        except (ValueError, RecursionError) as error:
            raise InvalidArguments(f"not JSON: {error}") from error
        if not isinstance(found, dict):
            raise InvalidArguments(f"expected a JSON object of arguments, got {type(found).__name__}")
        if wrong := sorted(self._required - found.keys()) + sorted(found.keys() - self._names):
            state = "missing" if wrong[0] in self._required else "unknown"
            raise InvalidArguments(f"{wrong[0]}: {state} argument")
        return self._defaults | found


def _is_json(annotation: object) -> bool:
    origin = typing.get_origin(annotation)
    if origin is None:
        return annotation in JSON_TYPES or annotation is None
    if origin is typing.Literal:
        return True
    return (origin in (list, dict, typing.Union, types.UnionType)) and all(
        map(_is_json, typing.get_args(annotation))
    )


class _Validated:
    """Arguments that pydantic validates."""

    def __init__(self, parameters: Sequence[inspect.Parameter], where: str) -> None:
        self._defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
        try:
            for each in parameters:
                # Fails if it cannot be JSON.
                pydantic.TypeAdapter(_annotation(each)).json_schema(mode="serialization")
            adapter = adapter_of(parameters)
        except (pydantic.errors.PydanticUserError, pydantic.errors.PydanticUndefinedAnnotation) as error:
            raise TypeError(f"{where}: {str(error).splitlines()[0]}") from error
        self._validator = adapter.validator
        # The adapter's own serializer ignores the configuration of a TypedDict (pydantic 2.14).
        self._serialize = pydantic_core.SchemaSerializer(adapter.core_schema, _BYTES).to_json

    def encode(self, values: Mapping[str, Any]) -> bytes:
        try:
            valid = self._validator.validate_python(dict(values))
            text = self._serialize(valid)
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidArguments(_said(error)) from None
        try:
            again = self._validator.validate_json(text)
        except (ValueError, RecursionError) as error:
            hint = "a model whose fields have aliases needs populate_by_name=True"
            raise InvalidArguments(
                f"{_said(error)}: the JSON of this value cannot be read back; {hint}"
            ) from None
        if again != valid:
            names = (name for name in valid if again.get(name) != valid[name])
            raise InvalidArguments(f"{next(names, '?')}: the value would not be the same after JSON")
        return text

    def decode(self, payload: bytes) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self._validator.validate_json(payload)
        except ValueError as error:
            raise InvalidArguments(_said(error)) from None
        return self._defaults | found


def _annotation(parameter: inspect.Parameter) -> Any:  # noqa: ANN401 -- any annotation
    return Any if parameter.annotation is parameter.empty else parameter.annotation


def adapter_of(parameters: Sequence[inspect.Parameter]) -> pydantic.TypeAdapter[Any]:
    """Return pydantic's adapter of the object of arguments."""
    fields: dict[str, Any] = {}
    for each in parameters:
        # A default is not stored, so that a new version of the function decides. Those of models are.
        optional = each.default is not each.empty
        fields[each.name] = (
            typing_extensions.NotRequired[_annotation(each)] if optional else _annotation(each)
        )
    # Of a model, fields cannot have every name that a parameter can, such as `copy` or `_x`.
    typed: Any = typing_extensions.TypedDict
    arguments = typed("Arguments", fields)
    arguments.__pydantic_config__ = _BYTES | {"extra": "forbid"}
    return pydantic.TypeAdapter(arguments)


def item_model(annotation: object) -> Any:  # noqa: ANN401 -- a class made here
    """Return pydantic's model of one value."""
    root = pydantic.RootModel[annotation]  # type: ignore[valid-type]
    return type("Item", (root,), {"__module__": __name__, "model_config": _BYTES})


def _item_decoder(annotation: object) -> Callable[[bytes], Any]:
    """Return a function that validates the JSON of one value."""
    validate = item_model(annotation).__pydantic_validator__.validate_json
    return lambda payload: validate(payload).root


def _said(error: Exception, *within: str) -> str:
    """Describe a validation error by the names of arguments, without their values: they may be secret."""
    if not isinstance(error, pydantic.ValidationError):
        return str(error).splitlines()[0]
    parts = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(
        ": ".join((".".join(map(str, loc)), _what(part, loc)))
        if (loc := (*within, *part["loc"]))
        else part["msg"]
        for part in parts[:3]
    )


def _what(part: pydantic_core.ErrorDetails, loc: tuple[int | str, ...]) -> str:
    """Return what is wrong at one place; of a whole argument, in the words that are used without pydantic."""
    whole = len(loc) == 1 and part["loc"]
    return _OF_ARGUMENTS.get(part["type"], part["msg"]) if whole else part["msg"]
