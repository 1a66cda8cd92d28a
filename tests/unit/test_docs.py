"""The documentation says what the program does: links, commands, settings, both languages."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import unquote

import agentcompass
import command_line
import pytest
import yaml
from agentcompass.app import catalog
from agentcompass.app.catalog import Catalog, Kind, parameters_of
from agentcompass.app.settings import Flags, Used, load_settings
from agentcompass.app.settings.models import ModelSettings, RunSettings, TaskKeys
from agentcompass.domain.events import Event
from agentcompass.domain.sandbox import SandboxSpec
from agentcompass.domain.value import Parameters
from agentcompass.testing.environment import EnvironmentContract

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ENGLISH = [ROOT / "README.md", *sorted(path for path in DOCS.rglob("*.md") if path.relative_to(DOCS).parts[0] != "zh")]
CHINESE = [ROOT / "README.zh-CN.md", *sorted((DOCS / "zh").rglob("*.md"))]
PAGES = [*ENGLISH, *CHINESE, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)


class Command(NamedTuple):
    page: Path
    words: list[str]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def twin(path: Path) -> Path:
    return ROOT / "README.zh-CN.md" if path.parent == ROOT else DOCS / "zh" / path.relative_to(DOCS)


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def blocks(page: Path, *languages: str) -> list[str]:
    found = FENCE.findall(page.read_text(encoding="utf-8"))
    return [text for language, text in found if not languages or language in languages]


def anchor(heading: str) -> str:
    """As GitHub makes them: lower case, punctuation dropped, spaces as hyphens."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def commands() -> Iterator[Command]:
    """Every `agentcompass ...` of a shell block."""
    for page in PAGES:
        for block in blocks(page, "bash"):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if words[:1] == ["agentcompass"]:
                    yield Command(page, words[1:])


COMMANDS = list(commands())
RUNS = [command for command in COMMANDS if command.words[0] == "run"]
YAML_BLOCKS = [(named(page), text) for page in PAGES for text in blocks(page, "yaml")]


def shown(command: Command) -> str:
    return f"{named(command.page)}: {' '.join(command.words)}"[:120]


@pytest.mark.parametrize("page", ENGLISH, ids=named)
def test_every_page_has_a_chinese_twin(page: Path) -> None:
    assert twin(page).is_file()


def test_every_chinese_page_has_an_english_twin() -> None:
    assert [twin(page) for page in ENGLISH] == [page for page in CHINESE if page in map(twin, ENGLISH)]
    assert len(ENGLISH) == len(CHINESE)


@pytest.mark.parametrize("page", ENGLISH, ids=named)
def test_both_languages_have_the_same_headings(page: Path) -> None:
    levels = [[level for level, _ in HEADING.findall(prose(each))] for each in (page, twin(page))]

    assert levels[0] == levels[1]


@pytest.mark.parametrize("page", ENGLISH, ids=named)
def test_both_languages_show_the_same_commands_and_files(page: Path) -> None:
    assert blocks(page) == blocks(twin(page))


@pytest.mark.parametrize("page", ENGLISH, ids=named)
def test_both_languages_name_the_same_settings_and_flags(page: Path) -> None:
    names = [sorted(set(re.findall(r"`([^`\n]+)`", prose(each)))) for each in (page, twin(page))]

    assert names[0] == names[1]


def leads_somewhere(page: Path, path: str, fragment: str) -> bool:
    there = (page.parent / path).resolve() if path else page
    if not there.exists() or not fragment:
        return there.exists()
    return fragment in [anchor(heading) for _, heading in HEADING.findall(prose(there))]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = [unquote(target) for target in LINK.findall(prose(page)) if "://" not in target]
    broken = [target for target in targets if not leads_somewhere(page, *target.partition("#")[::2])]

    assert broken == []


@pytest.mark.parametrize("command", COMMANDS, ids=shown)
def test_every_command_shown_exists_with_its_options(command: Command) -> None:
    result = command_line.command(*command.words, "--help")

    assert result.code == 0, result.err


@pytest.mark.parametrize("command", RUNS, ids=shown)
def test_every_run_shown_has_valid_settings(command: Command) -> None:
    options = dict(zip(command.words[4::1], command.words[5::1], strict=False))
    fields = {f"--{name.replace('_', '-')}": name for name in Flags.__dataclass_fields__}
    given = {name: value for option, value in options.items() if (name := fields.get(option))}
    numbers = {name: int(value) for name, value in given.items() if name in ("task_concurrency", "max_retries")}
    flags = Flags(environment_params=options.get("--env-params"), **{**given, **numbers})
    used = Used(command.words[1], command.words[2], command.words[3], options.get("--env"))
    settings = load_settings(used, flags=flags, environ={})

    assert settings.request().environment == options["--env"]


@pytest.mark.parametrize(
    ("page", "text"), YAML_BLOCKS, ids=lambda value: named(value) if isinstance(value, Path) else ""
)
def test_every_yaml_shown_is_a_valid_settings_file(page: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(text)
    result = command_line.command("config", "check", "--config", path)

    assert yaml.safe_load(text)
    assert result.code == 0, result.err


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip().removeprefix("|").removesuffix("|"))]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_table_is_whole(page: Path) -> None:
    found = re.findall(r"^(\|.*\|)\n\|[-| ]+\|\n((?:\|.*\n)*)", prose(page), re.MULTILINE)
    rows = [(cells(header), cells(row)) for header, body in found for row in body.splitlines()]
    broken = [row for header, row in rows if len(row) != len(header) or not all(row)]

    assert broken == []


def schema_keys() -> set[str]:
    """Every dotted key of `config schema`."""
    schema = json.loads(command_line.command("config", "schema").out)
    return set(keys_below(schema, "", schema["$defs"]))


def keys_below(node: dict[str, Any], path: str, definitions: dict[str, Any]) -> Iterator[str]:
    node = definitions[node["$ref"].rpartition("/")[2]] if "$ref" in node else node
    for name, below in node.get("properties", {}).items():
        key = f"{path}.{name}" if path else name
        yield key
        yield from keys_below(below, key, definitions)


def test_every_settings_key_named_exists() -> None:
    known = schema_keys()
    pattern = re.compile(r"`((?:run|model|environments|benchmarks|harnesses)(?:\.[a-z][a-z0-9_]*)+)`")
    named_keys = {(named(page), key) for page in PAGES for key in pattern.findall(prose(page))}
    named_keys = {(page, key) for page, key in named_keys if key != "run.log"}  # a file
    unknown = {(page, key) for page, key in named_keys if key not in known}

    assert len(named_keys) > 5
    assert unknown == set()


def test_every_variable_named_is_a_setting() -> None:
    known = {f"AGENTCOMPASS_{key.upper().replace('.', '__').replace('-', '_')}" for key in schema_keys()}
    texts = [(named(page), page.read_text(encoding="utf-8")) for page in PAGES]
    used = {(page, name) for page, text in texts for name in re.findall(r"AGENTCOMPASS_[A-Z]+__[A-Z_]*[A-Z]", text)}

    assert len(used) > 3
    assert {(page, name) for page, name in used if name not in known} == set()


def tables(page: Path) -> dict[str, str]:
    """Key -> default, of every table of parameters."""
    return dict(re.findall(r"^\| `(\w+)` \| `(.*?)` \|", prose(page), re.MULTILINE))


def documented() -> Iterator[tuple[str, type[Parameters]]]:
    """Page (below docs/) -> the parameters that it describes."""
    yield "settings.md", RunSettings
    yield "settings.md", ModelSettings
    yield "settings.md", TaskKeys
    catalog = Catalog()
    places = {Kind.BENCHMARKS: "benchmarks.md", Kind.HARNESSES: "harnesses.md", Kind.MODELS: "models.md"}
    for kind in (*places, Kind.ENVIRONMENTS):
        for name in catalog.names(kind):
            usual = places.get(kind, f"environments/{name}.md")
            page = "benchmarks/swebench.md" if name.startswith("swebench") else usual
            yield page, parameters_of(catalog.load(kind, name))


@pytest.mark.parametrize("language", ["", "zh"])
@pytest.mark.parametrize(
    ("page", "parameters"), list(documented()), ids=lambda value: getattr(value, "__name__", value)
)
def test_every_parameter_is_described_with_its_default(page: str, parameters: type[Parameters], language: str) -> None:
    shown_defaults = tables(DOCS / language / page)
    fields = parameters.model_fields.items()
    missing = [name for name, _ in fields if name not in shown_defaults]
    defaults = {name: field.get_default(call_default_factory=True) for name, field in fields}
    wrong = {name for name, value in defaults.items() if name in shown_defaults and shown_defaults[name] != text(value)}

    assert (missing, wrong) == ([], set())


def text(default: object) -> str:
    if isinstance(default, tuple | frozenset | set):
        default = sorted(default)
    return json.dumps(default, default=str)


@pytest.mark.parametrize("kind", [Kind.BENCHMARKS, Kind.HARNESSES, Kind.MODELS, Kind.ENVIRONMENTS])
def test_the_readme_and_the_changelog_name_every_adapter(kind: Kind) -> None:
    names = set(Catalog().names(kind))
    hidden = {
        name
        for name in names
        for page in (ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "README.zh-CN.md")
        if kind is not Kind.BENCHMARKS and f"`{name}`" not in prose(page)
    }

    assert hidden == set()


def test_every_message_to_look_up_is_one_that_the_program_says() -> None:
    messages = re.findall(r"^\| `(.*?)` \|", prose(DOCS / "troubleshooting.md"), re.MULTILINE)
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    parts = [part.strip() for message in messages for part in message.split("...")]

    assert len(messages) > 3
    assert [part for part in parts if part not in source] == []


@pytest.mark.parametrize("page", [DOCS / "results.md", DOCS / "zh" / "results.md"], ids=named)
def test_the_types_of_events_are_those_that_there_are(page: Path) -> None:
    (told,) = re.findall(r"`type`\s*[(（](.*?)[)）]", prose(page), re.DOTALL)
    kinds = [re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower() for kind in Event.__subclasses__()]

    assert sorted(re.findall(r"`(\w+)`", told)) == sorted([*kinds, "log"])


def test_the_exit_codes_of_the_readme_are_those_of_the_help() -> None:
    help_text = " ".join(command_line.command("run", "--help").out.split())
    codes = re.findall(r"^\| (\d+) \|", prose(ROOT / "README.md"), re.MULTILINE)

    assert codes == ["0", "1", "2", "130"]
    assert all(f"{code} " in help_text for code in codes)


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "README.zh-CN.md"], ids=named)
def test_the_readme_begins_with_the_demo_and_the_tests(page: Path) -> None:
    first = blocks(page, "bash")[0].splitlines()
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert first == ["make demo", "make test"]
    assert {"demo", "test"} <= targets


def test_the_demo_of_the_makefile_is_the_one_that_is_described() -> None:
    recipe = re.search(r"^demo:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    words = shlex.split(recipe[1].replace("\\\n", " ").strip())

    assert ["agentcompass", *words[1:]] in [["agentcompass", *command.words] for command in RUNS]


def test_the_python_example_of_the_readme_names_what_the_package_offers() -> None:
    (example,) = blocks(ROOT / "README.md", "python")
    names = set(re.findall(r"agentcompass\.(\w+)\(", example))

    assert names
    assert all(hasattr(agentcompass, name) for name in names)


@pytest.fixture
def guide(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """The Python of the contributor guide, each block as the module that the text names before it."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = re.findall(r"`((?:src|tests)/[\w/]+)\.py`:\n\n```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    modules: dict[str, ModuleType] = {}
    for path, source in found:
        name = path.replace("src/", "agentcompass/").replace("/", ".")
        modules[path] = module = ModuleType(name)
        module.__package__ = name.rpartition(".")[0]
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(source, path, "exec"), module.__dict__)

    assert len(modules) == page.count("```python")
    return modules


def test_the_environment_of_the_contributor_guide_is_found_by_its_line_of_the_catalog(
    guide: dict[str, ModuleType],
) -> None:
    (line,) = blocks(ROOT / "CONTRIBUTING.md", "text")
    ((name, path),) = eval(f"{{{line}}}", {"_ADAPTERS": catalog._ADAPTERS}).items()
    environment = Catalog().load(Kind.ENVIRONMENTS, path)

    assert environment is guide["src/adapters/environments/podman"].PodmanEnvironment
    assert environment.name == name


def test_the_contract_tests_of_the_contributor_guide_are_tests_of_that_environment(
    guide: dict[str, ModuleType],
) -> None:
    suite = guide["tests/integration/test_podman"].TestPodman
    fixtures = [getattr(suite, name).__wrapped__(suite()) for name in ("environment", "spec")]

    assert issubclass(suite, EnvironmentContract)
    assert isinstance(fixtures[0], guide["src/adapters/environments/podman"].PodmanEnvironment)
    assert isinstance(fixtures[1], SandboxSpec)


def test_the_benchmark_of_the_contributor_guide_works_as_it_is_shown(tmp_path: Path) -> None:
    (script,) = [text for text in blocks(ROOT / "CONTRIBUTING.md", "bash") if "task.toml" in text]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environ = {"PATH": path, "HOME": str(tmp_path)}
    done = subprocess.run(["bash", "-ec", script], cwd=tmp_path, env=environ, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert re.findall(r"^Score +(\S+ %)", done.stdout, re.MULTILINE) == ["100.0 %", "0.0 %"]
