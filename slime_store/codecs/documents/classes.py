"""Documents of user classes: enum members, dataclasses, named tuples, exceptions.

Only the fields are stored, under the name of the class. Reading never imports a module because a document
names it: the class must be loaded already, be one of slime's or miles's data types, or have been registered.
"""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import enum
import importlib
import sys
import types
from collections import UserDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from slime_store.codecs.documents import bodies
from slime_store.errors import BlobCorruptError
from slime_store.types import Placeholder, Record

if TYPE_CHECKING:
    from slime_store.codecs.documents.decoder import DocumentDecoder
    from slime_store.codecs.documents.encoder import DocumentEncoder

_IMPORTABLE = frozenset({"slime.utils.types", "miles.utils.types", "slime_store.types.params"})
"""Modules of plain data classes that reading may import; every other module must be loaded already."""
_registered: dict[str, type[Any]] = {}


def register_type(cls: type[Any]) -> type[Any]:
    """Let documents bring back instances of this enum, dataclass or named tuple; usable as a decorator.

    Needed only where the module that defines the class may not be loaded when a sample is read.
    """
    _registered[type_name(cls)] = cls
    return cls


def type_name(cls: type[Any]) -> str:
    """Return ``"module:QualName"``."""
    return f"{cls.__module__}:{cls.__qualname__}"


def find_type(name: str) -> type[Any] | None:
    """Return the class of this name when it is available without importing foreign code."""
    if name in _registered:
        return _registered[name]
    module_name, _, qualname = name.partition(":")
    module = sys.modules.get(module_name)
    if module is None and module_name in _IMPORTABLE:
        try:
            module = importlib.import_module(module_name)
        except Exception:  # the framework is not installed here, or not whole
            return None
    found: Any = module
    for part in qualname.split("."):
        found = _own_attributes(found).get(part)
    return found if issubclass(type(found), type) else None


def _own_attributes(thing: Any) -> Mapping[str, Any]:
    """Return what is in a module or class, running no code of it: a module may import whatever name it is asked for."""
    if issubclass(type(thing), type):
        return type.__getattribute__(thing, "__dict__")  # type: ignore[no-any-return]
    if issubclass(type(thing), types.ModuleType):
        return object.__getattribute__(thing, "__dict__")  # type: ignore[no-any-return]
    return {}


def find_encoder(value: Any) -> Callable[[Any, DocumentEncoder], Any] | None:
    """Return the handler for an instance of a user class, or None."""
    if isinstance(value, enum.Enum):
        return _encode_enum
    if isinstance(value, Record):
        return _encode_record
    if isinstance(value, Placeholder):
        return _encode_placeholder
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _encode_dataclass
    if isinstance(value, tuple) and hasattr(type(value), "_fields"):
        return _encode_namedtuple
    if isinstance(value, BaseException):
        return _encode_exception
    if isinstance(value, UserDict):
        return _encode_userdict
    return None


def _encode_placeholder(value: Placeholder, encoder: DocumentEncoder) -> Any:
    if not all(isinstance(each, str) for each in (value.type_name, value.text)):
        return encoder.unsupported(value, "a placeholder that is not of two texts")
    return encoder.placeholder(value.type_name, value.text)


def _encode_userdict(value: UserDict[Any, Any], encoder: DocumentEncoder) -> Any:
    """Come back as a plain dict, as transformers' BatchFeature and BatchEncoding must, whatever else these hold."""
    others = (vars(value).keys() - {"data"}) | _slots(value).keys()
    if others and type(value).__module__.partition(".")[0] != "transformers":
        return encoder.unsupported(value, f"{type_name(type(value))} with attributes of its own")
    return encoder.mapping(value.data)


def _slots(value: Any) -> dict[str, Any]:
    """Return what is in the slots of an object, those of every class that it is of."""
    found: dict[str, Any] = {}
    for base in type(value).__mro__:
        for name, slot in _own_attributes(base).items():
            if type(slot) is types.MemberDescriptorType and slot.__objclass__ is base:
                with contextlib.suppress(AttributeError):  # empty
                    found.setdefault(name, slot.__get__(value))
    return found


def _encode_enum(value: enum.Enum, encoder: DocumentEncoder) -> Any:
    cls = type(value)
    if find_type(type_name(cls)) is not cls:
        return encoder.unsupported(value, f"its class {type_name(cls)} cannot be found by name")
    name = value._name_
    if cls.__members__.get(name) is not value and not isinstance(value, enum.Flag):
        return encoder.unsupported(value, f"it is no member of its class {type_name(cls)}")
    name = encoder.text(name) if name is not None else None
    return {"$enum": {"type": type_name(cls), "name": name, "value": encoder.encode(value.value, ".value")}}


def _decode_enum(body: dict[str, Any], decoder: DocumentDecoder) -> Any:
    cls = find_type(body["type"])
    if cls is not None and issubclass(cls, enum.Enum):
        member = cls.__members__.get(body["name"]) if type(body["name"]) is str else None
        if member is None and issubclass(cls, enum.Flag) and isinstance(body["value"], int):
            return cls(body["value"])
        if member is not None:
            return member
    return Record(body["type"], "enum", {"name": body["name"], "value": body["value"]})


def _encode_dataclass(value: Any, encoder: DocumentEncoder) -> Any:
    cls = type(value)
    if find_type(type_name(cls)) is not cls:
        return encoder.unsupported(value, f"its class {type_name(cls)} cannot be found by name")
    try:
        object.__new__(cls)  # as it is made when it is read
    except TypeError:
        return encoder.unsupported(value, f"{type_name(cls)} is a dataclass and a builtin type at once")
    return {"$dataclass": {"type": type_name(cls), "fields": _encode_fields(_fields_of(value), encoder)}}


def _fields_of(value: Any) -> dict[str, Any]:
    names = [f.name for f in dataclasses.fields(value) if f.name not in getattr(value, "__dict__", {})]
    fields = {name: getattr(value, name) for name in names if hasattr(value, name)} | getattr(value, "__dict__", {})
    return fields | {name: item for name, item in _slots(value).items() if name not in fields}


def as_record(value: Any) -> Record | None:
    """Return an instance of a user class as what it is where its class is not loaded; None for anything else."""
    cls: Any = type(value)
    name = type_name(cls)
    if isinstance(value, enum.Enum):
        return Record(name, "enum", {"name": value._name_, "value": value._value_})
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return Record(name, "dataclass", _fields_of(value))
    if isinstance(value, tuple) and hasattr(cls, "_fields"):
        return Record(name, "namedtuple", dict(zip(cls._fields, value, strict=True)))
    return None


def with_fields(value: Any, change: Callable[[str, Any], Any]) -> Any:
    """Return a dataclass instance with every field changed, by its name and value; itself where that changes none."""
    fields = _fields_of(value)
    changed = {name: change(name, item) for name, item in fields.items()}
    return value if all(changed[name] is item for name, item in fields.items()) else _instance(type(value), changed)


def _encode_fields(fields: dict[str, Any], encoder: DocumentEncoder) -> Any:
    return [[encoder.text(name), encoder.encode(value, f".{name}")] for name, value in fields.items()]


def _decode_dataclass(body: dict[str, Any], decoder: DocumentDecoder) -> Any:
    cls, fields = find_type(body["type"]), bodies.attributes(body["fields"])
    if cls is not None and issubclass(cls, (Record, Placeholder)):
        raise BlobCorruptError(f"a {cls.__name__} that is not written as one")
    if cls is None or not dataclasses.is_dataclass(cls) or issubclass(cls, BaseException):
        return Record(body["type"], "dataclass", fields)
    value = _instance(cls, fields)
    return Record(body["type"], "dataclass", fields) if value is None else value


def _instance(cls: type[Any], fields: dict[str, Any]) -> Any:
    """Return an instance with these fields, running no code of the class; None where it cannot have them."""
    try:
        value = object.__new__(cls)
    except TypeError:  # of a class that has become abstract, or a builtin type's
        return None
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        attributes = None
    for name, item in fields.items():
        declared = next((found for base in cls.__mro__ if (found := _own_attributes(base).get(name)) is not None), None)
        if type(declared) is types.MemberDescriptorType:  # a slot
            declared.__set__(value, item)
        elif attributes is not None:
            attributes[name] = item  # also where a property has the name, whose code is not run
        else:
            return None  # the class has lost a slot since
    return value


def _encode_namedtuple(value: Any, encoder: DocumentEncoder) -> Any:
    cls = type(value)
    if find_type(type_name(cls)) is not cls:
        return encoder.unsupported(value, f"its class {type_name(cls)} cannot be found by name")
    if getattr(value, "__dict__", None):
        return encoder.unsupported(value, "a named tuple with attributes of its own")
    if type(cls._fields) is not tuple or len(set(cls._fields)) != len(value):
        return encoder.unsupported(value, "a named tuple that does not have the fields of its class")
    fields = dict(zip(cls._fields, value, strict=True))
    return {"$namedtuple": {"type": type_name(cls), "fields": _encode_fields(fields, encoder)}}


def _decode_namedtuple(body: dict[str, Any], decoder: DocumentDecoder) -> Any:
    cls, fields = find_type(body["type"]), bodies.attributes(body["fields"])
    if cls is None or not issubclass(cls, tuple) or getattr(cls, "_fields", None) != tuple(fields):
        return Record(body["type"], "namedtuple", fields)
    return tuple.__new__(cls, fields.values())


def _encode_record(value: Record, encoder: DocumentEncoder) -> Any:
    """A neutral record is stored as what it stands for, so that nothing is lost on the way through."""
    name = encoder.text(value.type_name)
    if value.kind == "enum" and value.fields.keys() == {"name", "value"}:
        fields = {key: encoder.encode(value.fields[key], f".{key}") for key in ("name", "value")}
        return {"$enum": {"type": name, **fields}}
    if value.kind in ("dataclass", "namedtuple"):
        return {f"${value.kind}": {"type": name, "fields": _encode_fields(value.fields, encoder)}}
    return encoder.unsupported(value, f"a record of kind {value.kind!r} with fields {list(value.fields)[:5]}")


def _encode_exception(value: BaseException, encoder: DocumentEncoder) -> Any:
    cls = type(value)
    reason = why_no_exact_exception(value)
    if reason is not None:
        return encoder.unsupported(value, reason)
    args = [encoder.encode(item, f".args[{i}]") for i, item in enumerate(value.args)]
    return {"$exception": [cls.__name__, {"$tuple": args}]}


def why_no_exact_exception(value: BaseException) -> str | None:
    """Return why an exception is more than its class and its arguments, so that these cannot bring it back; or None."""
    cls = type(value)
    if getattr(builtins, cls.__name__, None) is not cls or issubclass(cls, (OSError, UnicodeError, ImportError)):
        return f"{type_name(cls)} is not an exception that can be stored exactly"
    if value.__traceback__ is not None or value.__cause__ is not None or value.__context__ is not None:
        return "an exception with a traceback, cause or context cannot be stored exactly"
    if value.__dict__ or isinstance(value, (StopIteration, SystemExit, SyntaxError, NameError, AttributeError)):
        return "an exception with attributes of its own cannot be stored exactly"
    if cls.__name__.endswith("ExceptionGroup"):
        return "exception groups cannot be stored exactly"
    return None


def _decode_exception(body: list[Any], decoder: DocumentDecoder) -> BaseException:
    name, args = bodies.items(body, 2)
    cls = vars(builtins).get(name)
    if not (isinstance(cls, type) and issubclass(cls, BaseException)):
        raise ValueError(f"{name!r} is not an exception")
    if type(args) is not tuple:
        raise BlobCorruptError("an exception whose arguments are no tuple")
    value: BaseException = cls(*args)
    return value


DECODERS: dict[str, Callable[[Any, DocumentDecoder], Any]] = {
    "$enum": _decode_enum,
    "$dataclass": _decode_dataclass,
    "$namedtuple": _decode_namedtuple,
    "$exception": _decode_exception,
}
