"""What a run would do, without doing it."""

import asyncio
import sys
from collections.abc import Iterator, Sequence, Set

from ..adapters.progress import make_progress
from ..adapters.results.report import aligned
from ..domain.sandbox import SandboxSpec
from ..domain.task import Task
from .container import Container, Places, run_folder
from .settings import Settings

_COLUMNS = ("task", "image", "workspace root", "resources", "network", "limits (s)", "lifetime (s)")


def dry_run_text(settings: Settings) -> str:
    """Tasks, images, workspace roots, resources and limits; the tasks are loaded and checked, nothing is started.

    Raises:
        ConfigError: as the run itself would.
    """
    request = settings.request()
    places = Places(settings.results_dir, settings.data_dir)
    container = Container(request=request, places=places, progress=make_progress("none", sys.stderr))
    tasks = asyncio.run(container.evaluation().load_tasks())
    specs = container.specs()
    head = [
        f"run        {request.run_name}/{request.run_id}, in {run_folder(request, places)}",
        f"what       {request.benchmark} / {request.harness} / {request.model.name} / {request.environment}",
        f"attempts   {len(tasks)} tasks x {request.k}, {request.task_concurrency} at once",
    ]
    enforced = container.environment().capabilities.resources
    rows = [_COLUMNS, *(_row(task, specs(task), enforced) for task in tasks)]
    return "\n".join([*head, "", aligned(rows)])


def _row(task: Task, spec: SandboxSpec, enforced: Set[str]) -> Sequence[str]:
    return (
        task.id,
        _image(spec),
        str(spec.workspace_root or "(the image's)"),
        ", ".join(_resources(task, spec, enforced)) or "-",
        spec.network.value,
        _limits(task),
        f"{spec.timeout:g}",
    )


def _image(spec: SandboxSpec) -> str:
    if spec.named_image or spec.image:
        return spec.named_image or spec.image or ""
    return f"build of {spec.build.context.parent.name}/{spec.build.dockerfile}" if spec.build else "(none)"


def _resources(task: Task, spec: SandboxSpec, enforced: Set[str]) -> Iterator[str]:
    units = {"cpu": "cores", "memory": "MiB", "gpu": "GPU", "region": "", "platform": ""}
    for name, unit in units.items():
        value = getattr(spec, name)
        if value is not None:
            yield f"{value} {unit}".strip() + ("" if name in enforced else " (not enforced)")
    if task.metadata.get("storage_mb") is not None:
        yield f"{task.metadata['storage_mb']} MiB disk (not enforced)"


def _limits(task: Task) -> str:
    budgets = task.budgets
    return ", ".join(f"{budgets.name(stage)} {budgets.seconds(stage):g}" for stage in ("start", "agent", "grade"))
