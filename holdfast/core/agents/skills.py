"""Skills: instructions for certain tasks, which an agent loads when it needs them. Parses and checks their files.

1. A skill is a folder with a `SKILL.md`, whose YAML front matter gives `name` and `description`, and other files.
2. The prompt always has names and descriptions (`holdfast.core.transcript.prompt`); the agent reads the files on demand
   (`read_skill`).
3. A run records its files by the digests of their content, and reads those even if the files on disk change.
4. A skill without files is unusable; its description says why.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import yaml

from holdfast.core.agents.agent import SkillSpec
from holdfast.core.agents.front_matter import with_plain_text
from holdfast.core.base.canonical import address_of
from holdfast.errors import HoldfastError

SKILL_FILE = "SKILL.md"
"""The file that makes a folder a skill."""

NAME_CHARS = 64
DESCRIPTION_CHARS = 1_024
FRONT_MATTER_CHARS = 16_000
FRONT_MATTER_DEPTH = 20
PATH_CHARS = 200

MAX_FILES = 100
"""Maximum number of files of a skill."""
MAX_FILE_BYTES = 1_000_000
MAX_BYTES = 5_000_000
"""Maximum total size of the files of a skill."""

MAX_SKILLS = 100
"""Maximum number of skills of an agent."""
MAX_ALL_FILES = 1_000
"""Maximum number of files of all skills of an agent; a run records the address of each."""
MAX_ALL_BYTES = 20_000_000
"""Maximum total size of these files; a run stores them as artifacts when it begins."""

_NAME = re.compile(r"[a-z0-9-]+")
_FENCE = re.compile(r"^---[ \t]*$", re.MULTILINE)


class SkillInvalid(HoldfastError):
    """A skill is invalid; the message names the file and says what to change."""


@dataclass(frozen=True)
class Skill:
    """A skill with its files, for a catalog; `holdfast.workspace.memory.skills.load_skills` returns them."""

    name: str
    description: str
    files: Mapping[str, bytes]
    """Path → content; includes `SKILL.md`."""

    @cached_property
    def spec(self) -> SkillSpec:
        """The skill as a run records it."""
        addresses = {path: address_of(content) for path, content in sorted(self.files.items())}
        return SkillSpec(name=self.name, description=self.description, files=addresses)


def skill_from_files(files: Mapping[str, bytes], *, where: str) -> Skill:
    """Make a skill from its files.

    Args:
        files: Path → content.
        where: The folder, for errors.

    Raises:
        SkillInvalid: It has no SKILL.md, or one without a name or description, or it is too large.
    """
    if SKILL_FILE not in files:
        raise SkillInvalid(f"{where} has no {SKILL_FILE}; a skill is a folder with that file")
    for path, content in files.items():
        check_file(path, len(content), where=where)
    check_size(len(files), sum(map(len, files.values())), where=where)
    file = f"{where}/{SKILL_FILE}"
    try:
        text = files[SKILL_FILE].decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise SkillInvalid(f"{file} is not UTF-8 text; save it as such") from None
    name, description = read_front_matter(text, file=file)
    return Skill(name, description, dict(files))


def check_file(path: str, size: int, *, where: str) -> None:
    """Reject a file that a skill cannot have.

    Raises:
        SkillInvalid: It is too large, or its path is too long or not UTF-8.
    """
    if len(path) > PATH_CHARS or not _is_text(path):
        raise SkillInvalid(f"{where}: the path {path[:60]!r}… is over {PATH_CHARS} characters long, or is not UTF-8")
    if size > MAX_FILE_BYTES:
        raise SkillInvalid(f"{where}/{path} has {size:,} bytes; a file of a skill can have at most {MAX_FILE_BYTES:,}")


def check_size(files: int, size: int, *, where: str) -> None:
    """Reject a skill that is too large.

    Raises:
        SkillInvalid: It has too many files, or too many bytes.
    """
    if files > MAX_FILES:
        raise SkillInvalid(f"{where} has more than {MAX_FILES} files; take out what the agent does not need")
    if size > MAX_BYTES:
        raise SkillInvalid(f"{where} has more than {MAX_BYTES:,} bytes; take out what the agent does not need")


def read_front_matter(text: str, *, file: str) -> tuple[str, str]:
    """Read the name and the description in a SKILL.md, the description on one line.

    Args:
        text: The whole file, with line feeds as line ends.
        file: Its path, for errors.

    Raises:
        SkillInvalid: There is no front matter, it is not YAML, or a field is missing or invalid.
    """
    fences = _FENCE.finditer(text)
    first, last = next(fences, None), next(fences, None)
    if first is None or first.start() != 0:
        raise SkillInvalid(f"{file} has no front matter: begin it with a line ---, name: …, description: …, a line ---")
    if last is None:
        raise SkillInvalid(f"{file} has no front matter that ends: put a line --- after name and description")
    fields = _fields(text[first.end() : last.start()], file)
    name, description = _text(fields, "name", file), " ".join(_text(fields, "description", file).split())
    if len(name) > NAME_CHARS or not _NAME.fullmatch(name):
        wanted = f"use at most {NAME_CHARS} lower-case letters, digits and hyphens"
        raise SkillInvalid(f"{file}: the name {name[:80]!r} is not valid; {wanted}")
    if len(description) > DESCRIPTION_CHARS or not description or not _is_text(description):
        about = f"it has {len(description):,} characters" if description else "it is empty"
        raise SkillInvalid(f"{file}: the description must be text of 1 to {DESCRIPTION_CHARS:,} characters; {about}")
    return name, description


def unusable(name: str, why: str) -> SkillSpec:
    """Make the record of a skill that a run leaves out.

    Args:
        name: Its folder.
        why: The reason, shown to the LLM and to people.
    """
    return SkillSpec(name=name, description=" ".join(why.split())[:300], files={})


def add_workspace_skills(
    own: Iterable[Skill], found: Iterable[Skill | SkillSpec]
) -> tuple[list[Skill], list[SkillSpec]]:
    """Add the skills of a workspace to those of an agent.

    Args:
        own: The skills from the catalog, which take precedence over workspace skills of the same name.
        found: The skills in the workspace, in order; invalid ones as returned by `unusable`.

    Returns:
        The agent's skills, and those left out as returned by `unusable`.
    """
    usable, left_out = list(own), list[SkillSpec]()
    for skill in found:
        if isinstance(skill, SkillSpec):
            left_out.append(skill)
        elif any(skill.name == each.name for each in usable):
            left_out.append(unusable(skill.name, "there is another skill of this name"))
        elif why := limit_excess([*usable, skill]):
            left_out.append(unusable(skill.name, why))
        else:
            usable.append(skill)
    return usable, left_out[:MAX_SKILLS]


def limit_excess(skills: Collection[Skill]) -> str:
    """Describe how these skills exceed the limits of one agent; empty if they do not."""
    files = sum(len(skill.files) for skill in skills)
    size = sum(len(content) for skill in skills for content in skill.files.values())
    if len(skills) <= MAX_SKILLS and files <= MAX_ALL_FILES and size <= MAX_ALL_BYTES:
        return ""
    most = f"{MAX_SKILLS} skills, {MAX_ALL_FILES:,} files and {MAX_ALL_BYTES:,} bytes"
    return f"an agent can have at most {most}, but it would have {len(skills):,}, {files:,} and {size:,}"


def are_catalog_files(addresses: Iterable[str], skills: Iterable[Skill]) -> bool:
    """Whether all of these files are identical to files of skills in the catalog, which a person vouches for."""
    known: Collection[str] = {address for skill in skills for address in skill.spec.files.values()}
    return all(address in known for address in addresses)


def _fields(front_matter: str, file: str) -> dict[Any, Any]:
    if len(front_matter) > FRONT_MATTER_CHARS:
        raise SkillInvalid(f"{file}: its front matter is over {FRONT_MATTER_CHARS:,} characters long; keep it short")
    try:
        fields = _loaded(with_plain_text(front_matter), file)
    except SkillInvalid:
        raise
    except Exception as error:  # PyYAML raises errors of other types for some numbers, dates and nesting
        words = " ".join(str(error).split())[:300]
        raise SkillInvalid(f"{file}: its front matter is not YAML ({words}); put unusual text in quotes") from None
    if not isinstance(fields, dict):
        raise SkillInvalid(f"{file}: its front matter has no fields; add the lines name: … and description: …")
    return fields


def _loaded(front_matter: str, file: str) -> Any:
    """Read YAML; text that only looks like YAML, such as `"One" or two`, is read as text where nothing else is left."""
    try:
        _check_harmless(front_matter, file)
        return yaml.safe_load(front_matter)
    except yaml.YAMLError:
        literal = with_plain_text(front_matter, always=True)
        if literal == front_matter:
            raise
        _check_harmless(literal, file)
        return yaml.safe_load(literal)


def _check_harmless(front_matter: str, file: str) -> None:
    """Reject YAML that would exhaust memory or time: a few aliases expand to gigabytes, deep nesting takes minutes."""
    depth = 0
    for event in yaml.parse(front_matter, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise SkillInvalid(f"{file}: its front matter has an alias (*…); write it out, or put the text in quotes")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > FRONT_MATTER_DEPTH:
            raise SkillInvalid(f"{file}: its front matter is nested too deeply; put unusual text in quotes")


def _text(fields: dict[Any, Any], name: str, file: str) -> str:
    if name not in fields:
        raise SkillInvalid(f"{file}: its front matter has no {name}; add a line {name}: …")
    value = fields[name]
    if not isinstance(value, str):
        raise SkillInvalid(f"{file}: the {name} is not text but of type {type(value).__name__}; put it in quotes")
    return value


def _is_text(text: str) -> bool:
    """Whether `text` can be encoded as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
