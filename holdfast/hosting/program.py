"""The settings of a program that holds agents: those of a worker in its place, for a catalog that is an object.

A program reads what a worker reads: its arguments, the environment, and the files of the project in the current folder.
The code that those files name belongs to the project's catalog, and is used with that catalog alone.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.client.connect import connect_config, own_stack
from holdfast.config.loading import load
from holdfast.config.programs import base_folder
from holdfast.config.project import Project, read_project
from holdfast.config.settings import Settings, unknown_variables, variables
from holdfast.core.agents.catalog import Catalog
from holdfast.endpoints.script import Script
from holdfast.errors import SettingsError

_CATALOG, _SCRIPT, _QUEUE = (variables()[name] for name in ("catalog", "script", "task_queue"))


@dataclass(frozen=True)
class Program:
    """What a program that holds agents needs to know of its surroundings."""

    settings: Settings
    environ: Mapping[str, str]
    """The environment that the settings are from, completed by the project's files."""
    embedded: bool
    """Whether the embedded servers are used, because no Temporal server is configured."""
    warnings: tuple[str, ...]
    """Sentences about settings that have no effect."""
    script: Script | None
    """The answers of the scripted LLM that the settings name for this catalog."""

    @property
    def reference(self) -> str:
        """Where the catalog is from, for people: `package.module:attribute`."""
        return self.settings.catalog


def read_program(
    catalog: Catalog, *, task_queue: str | None = None, home: Path | str | None = None, by: str | None = None
) -> Program:
    """Read the settings for a catalog. Arguments take precedence over the environment.

    Args:
        catalog: The agents and tools of the program.
        task_queue: The catalog's task queue; None to choose one (`_queue`).
        home: The state folder.
        by: The person who starts runs, decides and sends messages.

    Raises:
        SettingsError: A setting cannot be used, or a Temporal server is configured without a database.
        ServerUnreachable: Temporal's configuration cannot be read.
    """
    arguments = {"task_queue": task_queue, "home": home, "by": by}
    given = {variables()[name]: str(value) for name, value in arguments.items() if value is not None}
    environ = {**os.environ, **given}
    project = read_project(environ, folder=Path.cwd(), default_root=base_folder(), runs_code=False)
    module = module_name(catalog)
    reference = f"{module}:{_attribute(catalog)}"
    of_project = project.code.get(_CATALOG) == reference
    settings = Settings.from_env({**project.environ, _CATALOG: reference}, root=project.root, files=project.files)
    embedded = own_stack(connect_config(project.environ, home=settings.home)) is not None
    if not embedded and settings.database_url is None:
        raise SettingsError(
            "a Temporal server is configured, and DATABASE_URL is not set: effects are recorded in PostgreSQL. Set it "
            "(postgresql://user@host/name), or configure neither for embedded servers."
        )
    if embedded and not of_project and not environ.get(_QUEUE, "").strip():
        settings = settings.model_copy(update={"task_queue": f"{module}.{next(iter(catalog.agents))}"})
    script = _script(project, catalog, module) if of_project else None
    return Program(settings, project.environ, embedded, tuple(unknown_variables(environ)), script)


def module_name(catalog: Catalog) -> str:
    """Return the name of the module that made a catalog, the same whether it is run or imported.

    For a script that is its file's name without the suffix; for a notebook, the notebook's.
    """
    if catalog.module != "__main__":
        return catalog.module or "catalog"
    main = sys.modules["__main__"]
    if spec := getattr(main, "__spec__", None):  # python -m package.module
        return str(spec.name).removesuffix(".__main__")
    file = getattr(main, "__file__", None) or os.environ.get("JPY_SESSION_NAME") or "notebook"
    return Path(file).stem


def _attribute(catalog: Catalog) -> str:
    """Return the name of a catalog in its module; `catalog` if it has none there."""
    names = vars(sys.modules[catalog.module]) if catalog.module in sys.modules else {}
    return next((name for name, value in names.items() if value is catalog), "catalog")


def _script(project: Project, catalog: Catalog, module: str) -> Any:
    """Return the script of the project; from the module that has the catalog without importing that twice."""
    if (reference := project.code.get(_SCRIPT)) is None:
        return None
    name, _, attribute = reference.partition(":")
    if name == module and callable(found := getattr(sys.modules[catalog.module], attribute, None)):
        return found
    return load(reference, object)
