"""Reads skills from folders: those of a catalog, and those of a run's workspace.

    Catalog(agents=[…], skills=load_skills(Path(__file__).parent / "skills"))

Links are not followed, and large files are not read, because the files of a workspace are untrusted.
"""

import errno
import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from holdfast.core.agents.agent import SkillSpec
from holdfast.core.agents.skills import (
    MAX_SKILLS,
    SKILL_FILE,
    Skill,
    SkillInvalid,
    check_file,
    check_size,
    skill_from_files,
    unusable,
)
from holdfast.workspace.paths import OutsideWorkspace, inside

WORKSPACE_SKILLS = ".agents/skills"
"""The folder of a workspace's own skills."""

_LISTED = 10_000
"""The most entries of that folder that are read."""


def load_skills(folder: Path | str) -> list[Skill]:
    """Load the skills in a folder for a catalog, sorted by name. Each is a folder with a `SKILL.md`.

    Folders whose names begin with a dot or an underscore are left out. The folder of one skill gives that skill.

    Raises:
        SkillInvalid: There is no such folder, or a skill in it is invalid; the text names the file.
    """
    if (Path(folder) / SKILL_FILE).is_file():
        return [_only_skill(Path(folder))]
    try:
        folders = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and entry.name[0] not in "._")
    except OSError as error:
        raise SkillInvalid(f"skills cannot be read from {folder}: {error.strerror}") from None
    return [_read(Path(folder, name), where=str(Path(folder, name))) for name in folders]


def _only_skill(folder: Path) -> Skill:
    """Read the one skill of a folder that is itself a skill.

    Raises:
        SkillInvalid: The skill is invalid, or other skills are in its folder.
    """
    inner = sorted(each.parent.name for each in folder.glob(f"[!.]*/{SKILL_FILE}"))
    if inner:
        raise SkillInvalid(f"{folder} is a skill itself and has others in it ({', '.join(inner)}); put them beside it")
    return _read(folder, where=str(folder))


def is_linked(workspace: Path, name: str) -> bool:
    """Whether a link within the workspace leads to that file: `write_file` may write to its target.

    Raises:
        OutsideWorkspace: The link leads outside.
    """
    return inside(workspace, name) != Path(os.path.realpath(workspace), name)


def workspace_skills(workspace: Path) -> Iterator[Skill | SkillSpec]:
    """Read a workspace's skills in `.agents/skills`, by folder; for an invalid one, yields the reason (`unusable`).

    Raises:
        OSError: The file system failed. Retryable.
    """
    try:
        folder = inside(workspace, WORKSPACE_SKILLS)
        if is_linked(workspace, WORKSPACE_SKILLS):
            yield unusable(WORKSPACE_SKILLS, "a link leads to it; put the folder there itself")
            return
        with os.scandir(folder) as entries:
            listed = sorted((entry.name, entry.is_symlink(), entry.is_dir()) for entry in islice(entries, _LISTED))
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OutsideWorkspace, PermissionError):
        yield unusable(WORKSPACE_SKILLS, "it leads outside the workspace, or permission to read it was denied")
        return
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        yield unusable(WORKSPACE_SKILLS, "it is a link that leads to itself")
        return
    folders = [(name, is_link) for name, is_link, is_folder in listed if is_folder and not name.startswith(".")]
    for name, is_link in folders[:MAX_SKILLS]:
        where = f"{WORKSPACE_SKILLS}/{name}".encode("utf-8", "replace").decode()
        try:
            if is_link:
                raise SkillInvalid(f"{where} is a link; put the skill there itself")
            if (folder / name / SKILL_FILE).exists():
                yield _read(folder / name, where=where)
        except SkillInvalid as error:
            yield unusable(where.rpartition("/")[2], str(error))
        except PermissionError:
            yield unusable(where.rpartition("/")[2], f"permission to read {where} was denied")
    if len(folders) > MAX_SKILLS:
        yield unusable(WORKSPACE_SKILLS, f"it has {len(folders):,} folders; only {MAX_SKILLS} are read")


def _read(folder: Path, *, where: str) -> Skill:
    """Read a skill from its folder.

    Raises:
        SkillInvalid: The skill is invalid.
    """
    files: dict[str, bytes] = {}
    size = 0
    for path in _paths(folder, where):
        name = str(path.relative_to(folder))
        check_file(name, 0, where=where)  # before the name becomes part of a message
        try:
            files[name] = _content(path, name, where)
        except (FileNotFoundError, PermissionError) as error:
            raise SkillInvalid(f"{where}/{name} cannot be read: {error.strerror}") from None
        size += len(files[name])
        check_size(len(files), size, where=where)
    return skill_from_files(files, where=where)


def _paths(folder: Path, where: str) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        for name in sorted(name for name in [*folders, *names] if Path(parent, name).is_symlink()):
            shown = name.encode("utf-8", "replace").decode()
            raise SkillInvalid(f"{where} has a link, {shown!r}; put the file there itself")
        yield from (Path(parent, name) for name in sorted(names) if not name.startswith("."))


def _content(path: Path, name: str, where: str) -> bytes:
    if not stat.S_ISREG(path.lstat().st_mode):
        raise SkillInvalid(f"{where}/{name} is not a regular file; remove it")
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
        check_file(name, os.fstat(file.fileno()).st_size, where=where)
        return file.read()
