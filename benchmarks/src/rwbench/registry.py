"""Names for methods, retrievers and recipes.

A component is a frozen dataclass whose fields are its hyper-parameters, checked by pydantic. It registers itself under
a name, turns into a plain dict for the run's spec, and is built again from that dict. Every module of the component's
package is imported on the first look-up, so a new file in the folder is all that a new component needs.
"""

import dataclasses
import importlib
import pkgutil
from abc import ABC
from typing import Annotated, Any, ClassVar, Generic, TypeVar, dataclass_transform

from pydantic import ConfigDict, Field, GetCoreSchemaHandler
from pydantic.dataclasses import dataclass
from pydantic_core import CoreSchema
from pydantic_core.core_schema import is_instance_schema, no_info_before_validator_function
from ruleworld_data.spec import check_name, read_fields

T = TypeVar("T")
Positive = Annotated[int, Field(ge=1)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]


class Registry(Generic[T]):
    """A mapping from names to components that fills itself from one package.

    ``kind`` says in messages what is registered; the modules of ``package`` register theirs when imported.
    """

    def __init__(self, kind: str, package: str) -> None:
        self.kind = kind
        self.package = package
        self._entries: dict[str, T] = {}

    def add(self, name: str, entry: T) -> None:
        """Register ``entry``; a name can be given to one entry only."""
        known = self._entries.get(name)
        if known is not None and _origin(known) != _origin(entry):
            raise ValueError(
                f"two {self.kind}s are named {name!r}: {_origin(known)} and {_origin(entry)}; rename one"
            )
        self._entries[name] = entry

    def get(self, name: str) -> T:
        """Return the entry called ``name``; a ValueError with near matches if there is none."""
        entries = self.items()
        return entries[check_name(self.kind, name, entries)]

    def items(self) -> dict[str, T]:
        """Return all entries by name, sorted."""
        package = importlib.import_module(self.package)
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{self.package}.{module.name}")
        return dict(sorted(self._entries.items()))

    def remove(self, name: str) -> None:
        """Forget an entry (tests that define one on the fly)."""
        self._entries.pop(name, None)


def _origin(entry: Any) -> str:
    """Return where a class was written, or the function that an entry holds."""
    target = getattr(entry, "function", entry)
    return f"{target.__module__}.{target.__qualname__}"


class Component(ABC):
    """Base of methods and retrievers: a frozen dataclass with a name and a plain-dict form.

    A subclass sets ``name`` and ``registry`` (its family's base class sets the latter) and is decorated with
    ``@component``. ``key`` and ``label`` say how a report calls it.
    """

    name: ClassVar[str]
    title: ClassVar[str] = ""
    registry: ClassVar[Registry[Any]]

    @property
    def key(self) -> str:
        """Short stable identifier in reports; equal keys are one method and share one curve."""
        return self.name

    @property
    def label(self) -> str:
        """What a reader sees."""
        return self.title or self.name

    def missing(self) -> str | None:
        """Return what the user must type to make this component, and what it is made of, usable; None: nothing."""
        values = [getattr(self, field.name) for field in dataclasses.fields(self)]  # type: ignore[arg-type]
        parts = [part for value in values for part in (value if isinstance(value, tuple) else (value,))]
        needs = (part.missing() for part in parts if isinstance(part, Component))
        return next(filter(None, needs), None)

    def to_dict(self) -> dict[str, Any]:
        """Return name and all fields as JSON values; nested components become dicts too.

        A field that came later (metadata ``later``) is left out at its default, so that older runs keep their ids.
        """
        values = {}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if not (field.metadata.get("later") and value == field.default):
                values[field.name] = _plain(value)
        return {"name": self.name, **values}

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Let a field that is a component take it, or the dict that describes it."""
        if dataclasses.is_dataclass(cls) and "__pydantic_core_schema__" not in vars(cls):
            return handler(source)  # the class itself is being made
        return no_info_before_validator_function(
            lambda value: cls.from_dict(value) if isinstance(value, dict) else value, is_instance_schema(cls)
        )

    @classmethod
    def from_dict(cls, params: dict[str, Any]) -> Any:
        """Build the component that ``to_dict`` described; a ValueError names an unknown component or parameter."""
        values = dict(params)
        kind = cls.registry.get(values.pop("name", None))
        return read_fields(kind, values, f"parameter of {cls.registry.kind} {kind.name!r}")


@dataclass_transform(frozen_default=True)
def component(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass, whose fields are checked, and register it in its family under ``cls.name``."""
    made: Any = dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid"))(cls)
    made.registry.add(made.name, made)
    return made


def check_same(what: str, wanted: str, found: str) -> None:
    """Raise a ValueError if a run was made for other files; without a hash in its spec there is nothing to compare."""
    if wanted and wanted != found:
        raise ValueError(
            f"the run was made for {what} {wanted}, now it is {found or 'another'}; put the old files back, or start a "
            "new run"
        )


def _plain(value: Any) -> Any:
    if isinstance(value, Component):
        return value.to_dict()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
