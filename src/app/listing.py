"""What `list` says of each adapter, installed whole or not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..domain.errors import ConfigError
from ..domain.suggest import did_you_mean
from .catalog import Catalog, Kind, SdkMissing, description_of
from .settings import section_model


@dataclass(frozen=True)
class Listed:
    """One adapter. `problem` says why it cannot be used here, and the mend; "" when it can."""

    name: str
    description: str
    import_path: str
    origin: str
    parameters: dict[str, Any] | None
    """JSON schema of its section; None when it cannot be loaded."""
    problem: str = ""

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "name": self.name,
            "description": self.description,
            "import_path": self.import_path,
            "origin": self.origin,
            "parameters": self.parameters,
            "problem": self.problem or None,
        }


def named(word: str) -> Kind:
    """The kind that is called `word`. Raises ConfigError."""
    if word not in list(Kind):
        raise ConfigError(f"nothing to list by the name {word!r}; {did_you_mean(word, [each.value for each in Kind])}")
    return Kind(word)


def listed(kind: Kind, catalog: Catalog | None = None) -> list[Listed]:
    """Every adapter of a kind, also one whose SDK is missing or that is broken."""
    catalog = catalog or Catalog()
    return [_listed(kind, name, catalog) for name in catalog.names(kind)]


def listed_text(adapters: Sequence[Listed]) -> str:
    """A line for each: its name, and what it is or why it cannot be used."""
    width = max((len(each.name) for each in adapters), default=0)
    texts = {each.name: f"({each.problem})" if each.problem else each.description for each in adapters}
    return "\n".join(f"{name.ljust(width)}  {text}".rstrip() for name, text in texts.items())


def _listed(kind: Kind, name: str, catalog: Catalog) -> Listed:
    try:
        entry = catalog.entry(kind, name)
    except ConfigError as exc:
        return Listed(name, "", "", "several", None, str(exc))
    try:
        adapter = catalog.load(kind, name)
    except SdkMissing as exc:
        return Listed(name, "", entry.import_path, entry.origin, None, f"not installed: {exc.hint}")
    except ConfigError as exc:
        return Listed(name, "", entry.import_path, entry.origin, None, str(exc))
    schema = section_model(kind, adapter).model_json_schema()
    return Listed(name, description_of(adapter), entry.import_path, entry.origin, schema)
