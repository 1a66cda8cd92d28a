"""Which adapters there are: name -> `module:Class`, imported only when named."""

import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from inspect import isfunction
from types import ModuleType
from typing import Any

from ..domain import ports
from ..domain.errors import ConfigError
from ..domain.one_line import one_line
from ..domain.suggest import did_you_mean
from ..domain.value import Parameters

_OURS = __name__.partition(".")[0]
_ADAPTERS = f"{_OURS}.adapters"


class Kind(StrEnum):
    """The kinds of adapters, as in `list KIND` and the entry-point group `agentcompass.KIND`."""

    BENCHMARKS = "benchmarks"
    HARNESSES = "harnesses"
    ENVIRONMENTS = "environments"
    MODELS = "models"
    RECIPES = "recipes"

    @property
    def one(self) -> str:
        """Its singular, for messages."""
        return {"benchmarks": "benchmark", "harnesses": "harness"}.get(self.value, self.value.rstrip("s"))


BUILT_INS: Mapping[Kind, Mapping[str, str]] = {
    Kind.ENVIRONMENTS: {
        "docker": f"{_ADAPTERS}.environments.docker.environment:DockerEnvironment",
        "host_process": f"{_ADAPTERS}.environments.host_process.environment:HostProcessEnvironment",
        "modal": f"{_ADAPTERS}.environments.modal.environment:ModalEnvironment",
    },
    Kind.HARNESSES: {
        "mini_swe_agent": f"{_ADAPTERS}.harnesses.mini_swe_agent.harness:MiniSweAgentHarness",
        "oracle": f"{_ADAPTERS}.harnesses.oracle:OracleHarness",
        "nop": f"{_ADAPTERS}.harnesses.nop:NopHarness",
        "command": f"{_ADAPTERS}.harnesses.command:CommandHarness",
        "resubmit": f"{_ADAPTERS}.harnesses.resubmit:ResubmitHarness",
    },
    Kind.MODELS: {
        "openai-chat": f"{_ADAPTERS}.models.openai_chat:OpenAIChatModel",
        "replay": f"{_ADAPTERS}.models.replay:ReplayModel",
    },
    Kind.BENCHMARKS: {
        "task_directory": f"{_ADAPTERS}.benchmarks.task_directory.benchmark:TaskDirectoryBenchmark",
        "terminal_bench_2": f"{_ADAPTERS}.benchmarks.terminal_bench_2:TerminalBench2Benchmark",
        "quickstart": f"{_ADAPTERS}.benchmarks.quickstart:QuickstartBenchmark",
        "swebench_verified": f"{_ADAPTERS}.benchmarks.swebench.benchmark:SweBenchVerifiedBenchmark",
        "swebench_lite": f"{_ADAPTERS}.benchmarks.swebench.benchmark:SweBenchLiteBenchmark",
        "swebench": f"{_ADAPTERS}.benchmarks.swebench.benchmark:SweBenchBenchmark",
        "swebench_multilingual": f"{_ADAPTERS}.benchmarks.swebench.benchmark:SweBenchMultilingualBenchmark",
    },
    Kind.RECIPES: {
        "task_directory": f"{_ADAPTERS}.recipes.task_directory:TaskDirectoryRecipe",
        "swebench": f"{_ADAPTERS}.recipes.swebench:SweBenchRecipe",
    },
}

EXTRAS: Mapping[str, str] = {"minisweagent": "mini-swe-agent"}
"""Top-level module of an optional SDK -> the extra of this package that installs it."""

_PORTS: Mapping[Kind, type] = {
    Kind.ENVIRONMENTS: ports.Environment,
    Kind.HARNESSES: ports.Harness,
    Kind.MODELS: ports.Model,
    Kind.BENCHMARKS: ports.Benchmark,
    Kind.RECIPES: ports.Recipe,
}
_IMPORT_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


class SdkMissing(ConfigError):
    """The adapter is there, a package that it needs is not; `hint` says how to install it."""


@dataclass(frozen=True)
class Entry:
    """One line of the catalog."""

    kind: Kind
    name: str
    import_path: str
    origin: str = "built-in"
    """`built-in`, `entry point of PACKAGE`, or `import path`."""


@cache
def _installed() -> Any:
    return entry_points()  # once, since it reads a file of every installed package; of another type before Python 3.12


class Catalog:
    """Looks adapters up by name: built-in, registered by an installed package, or `module:Class`."""

    def __init__(
        self,
        built_ins: Mapping[Kind, Mapping[str, str]] = BUILT_INS,
        registered: Callable[[str], Iterable[EntryPoint]] = lambda group: _installed().select(group=group),
    ) -> None:
        self._built_ins = built_ins
        self._registered = registered
        self._known: dict[Kind, dict[str, list[Entry]]] = {}

    def names(self, kind: Kind) -> list[str]:
        """All names of a kind, built-in ones first."""
        return list(self._entries(kind))

    def entry(self, kind: Kind, name: str) -> Entry:
        """The line for a name or `module:Class`.

        Raises:
            ConfigError: no such name (with the nearest), or more than one package registers it.
        """
        if ":" in name:
            return _import_entry(kind, name)
        entries = self._entries(kind).get(name)
        if not entries:
            nearby = did_you_mean(name, self.names(kind))
            raise ConfigError(f"no {kind.one} {name!r}; {nearby}", hint=f"agentcompass list {kind}, or module:Class")
        if len(entries) > 1:
            paths = ", ".join(f"{entry.import_path} ({entry.origin})" for entry in entries)
            raise ConfigError(f"{kind.one} {name!r} is registered twice: {paths}", hint="name it as module:Class")
        return entries[0]

    def load(self, kind: Kind, name: str) -> type[Any]:
        """The adapter's class, which implements the port of `kind` and names its `Parameters`.

        Raises:
            SdkMissing: a package that it needs is not installed.
            ConfigError: every other reason, each its own sentence; a fault inside the module is chained as the cause.
        """
        entry = self.entry(kind, name)
        module_name, _, class_name = entry.import_path.partition(":")
        module = _imported(entry, module_name)
        found = getattr(module, class_name, None)
        if not isinstance(found, type):
            classes = [each for each, value in vars(module).items() if isinstance(value, type)]
            raise ConfigError(f"{_label(entry)}: no class {class_name!r} in it; {did_you_mean(class_name, classes)}")
        _refuse_incomplete(entry, found)
        return found

    def _entries(self, kind: Kind) -> dict[str, list[Entry]]:
        if kind not in self._known:
            found = {name: [Entry(kind, name, path)] for name, path in self._built_ins.get(kind, {}).items()}
            for point in self._registered(f"agentcompass.{kind}"):
                package = point.dist.name if point.dist else "an installed package"
                entry = Entry(kind, point.name, point.value, f"entry point of {package}")
                same = found.setdefault(point.name, [])
                if all(other.import_path != entry.import_path for other in same):
                    same.append(entry)
            self._known[kind] = found
        return self._known[kind]


def parameters_of(adapter: type[Any]) -> type[Parameters]:
    """The settings section of an adapter class; a recipe has none."""
    found: type[Parameters] = getattr(adapter, "Parameters", Parameters)
    return found


def description_of(adapter: type[Any]) -> str:
    """The first line of the class's docstring."""
    lines = (adapter.__doc__ or "").strip().splitlines()
    return lines[0].strip() if lines else ""


def _import_entry(kind: Kind, name: str) -> Entry:
    if not _IMPORT_PATH.fullmatch(name):
        raise ConfigError(f"{kind.one} {name!r} is no import path", hint="write package.module:Class")
    return Entry(kind, name, name, "import path")


def _label(entry: Entry) -> str:
    return f"{entry.kind.one} {entry.name!r}: {entry.import_path.partition(':')[0]}"


def _imported(entry: Entry, module_name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as exc:
        raise _not_found(entry, module_name, exc) from exc
    except (Exception, SystemExit) as exc:  # noqa: BLE001 - a plug-in's module may raise anything
        raise ConfigError(f"{_label(entry)}: broken: importing it failed: {_told(exc)}") from exc


def _not_found(entry: Entry, module_name: str, exc: ModuleNotFoundError) -> ConfigError:
    missing = exc.name or ""
    if module_name == missing or module_name.startswith(f"{missing}."):
        return ConfigError(f"{_label(entry)}: no such module", hint=f"is the package of {missing!r} installed?")
    top = missing.partition(".")[0]
    if not missing or top in (_OURS, module_name.partition(".")[0]):
        return ConfigError(f"{_label(entry)}: broken: importing it failed: {_told(exc)}")
    package = f"'{_OURS}[{EXTRAS[top]}]'" if top in EXTRAS else _OURS if entry.origin == "built-in" else top
    install = f"pip install {package}"
    return SdkMissing(
        f"{entry.kind.one} {entry.name!r} needs the package {top!r}, which is not installed", hint=install
    )


def _told(exc: BaseException) -> str:
    text = one_line(str(exc))
    return f"{type(exc).__name__}: {text}" if text else type(exc).__name__


def _refuse_incomplete(entry: Entry, adapter: type[Any]) -> None:
    what = f"{entry.kind.one} {entry.name!r}: {adapter.__name__}"
    missing = [name for name in required(entry.kind) if not _has(adapter, name)]
    if missing:
        raise ConfigError(f"{what} does not implement the port; it lacks {', '.join(missing)}")
    parameters = parameters_of(adapter)
    if not (isinstance(parameters, type) and issubclass(parameters, Parameters)):
        raise ConfigError(f"{what}.Parameters is no subclass of domain.value.Parameters")


def required(kind: Kind) -> list[str]:
    """What a class of this kind must have: the port's methods and class variables."""
    port = _PORTS[kind]
    methods = [name for name, value in vars(port).items() if isfunction(value) and _public(name)]
    return sorted({*methods, *filter(_public, port.__annotations__)})


def _public(name: str) -> bool:
    return not name.startswith("_") or name == "__call__"


def _has(adapter: type[Any], name: str) -> bool:
    return any(name in vars(base) for base in adapter.__mro__)
