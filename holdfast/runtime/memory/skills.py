"""Reads skills from folders: a catalog's, and those of a run's workspace.

    Catalog(agents=[…], skills=load_skills(Path(__file__).parent / "skills"))

Links are not followed, and what is too large is not read: whoever writes to a workspace may put anything there.
"""

import errno
import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from holdfast.agents.agent import SkillSpec
from holdfast.agents.skills import (
    MAX_SKILLS,
    SKILL_FILE,
    Skill,
    SkillInvalid,
    check_file,
    check_size,
    skill_from_files,
    unusable,
)
from holdfast.runtime.workspace.paths import OutsideWorkspace, inside

WORKSPACE_SKILLS = ".agents/skills"
"""Where a workspace has its own."""

_LISTED = 10_000
"""Entries of that folder that are looked at."""


def load_skills(folder: Path | str) -> list[Skill]:
    """The skills of a folder, for a catalog: each in a folder of its own, with a `SKILL.md`. By name.

    Names that begin with a dot or an underscore are left out.

    Raises:
        SkillInvalid: There is no such folder, or a skill in it cannot be used; the text names the file.
    """
    try:
        folders = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and entry.name[0] not in "._")
    except OSError as error:
        raise SkillInvalid(f"skills cannot be read from {folder}: {error.strerror}") from None
    return [_read(Path(folder, name), where=str(Path(folder, name))) for name in folders]


def is_linked(workspace: Path, name: str) -> bool:
    """Whether a link within the workspace leads to what has that name: `write_file` may write there.

    Raises:
        OutsideWorkspace: It leads outside.
    """
    return inside(workspace, name) != Path(os.path.realpath(workspace), name)


def workspace_skills(workspace: Path) -> Iterator[Skill | SkillSpec]:
    """The skills that a workspace has in `.agents/skills`, by folder; those that cannot be used say why (`unusable`).

    Raises:
        OSError: The file system does not answer as it should; to be tried again.
    """
    try:
        folder = inside(workspace, WORKSPACE_SKILLS)
        if is_linked(workspace, WORKSPACE_SKILLS):
            yield unusable(WORKSPACE_SKILLS, "a link leads to it; put the folder there itself")
            return
        with os.scandir(folder) as entries:
            found = sorted((entry.name, entry.is_symlink(), entry.is_dir()) for entry in islice(entries, _LISTED))
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OutsideWorkspace, PermissionError):
        yield unusable(WORKSPACE_SKILLS, "it leads outside the workspace, or may not be read")
        return
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        yield unusable(WORKSPACE_SKILLS, "it is a link that leads to itself")
        return
    taken = [(name, link) for name, link, is_folder in found if is_folder and not name.startswith(".")]
    for name, link in taken[:MAX_SKILLS]:
        where = f"{WORKSPACE_SKILLS}/{name}".encode("utf-8", "replace").decode()
        try:
            if link:
                raise SkillInvalid(f"{where} is a link; put the skill there itself")
            if (folder / name / SKILL_FILE).exists():
                yield _read(folder / name, where=where)
        except SkillInvalid as error:
            yield unusable(where.rpartition("/")[2], str(error))
        except PermissionError:
            yield unusable(where.rpartition("/")[2], f"{where} may not be read")
    if len(taken) > MAX_SKILLS:
        yield unusable(WORKSPACE_SKILLS, f"it has {len(taken):,} folders, and {MAX_SKILLS} are looked at")


def _read(folder: Path, *, where: str) -> Skill:
    """A skill from its folder.

    Raises:
        SkillInvalid: It cannot be used.
    """
    files: dict[str, bytes] = {}
    size = 0
    for path in _paths(folder, where):
        name = str(path.relative_to(folder))
        check_file(name, 0, where=where)  # before it is part of any message
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
        raise SkillInvalid(f"{where}/{name} is no regular file; take it out")
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:
        check_file(name, os.fstat(file.fileno()).st_size, where=where)
        return file.read()
