"""`read_skill`: the tool that loads a skill when an agent needs it, as it was when the run started."""

from collections.abc import Iterable, Sequence

from holdfast.activities.calling_run import CallingRun
from holdfast.core.agents.agent import AgentSpec, SkillSpec
from holdfast.core.agents.skills import SKILL_FILE, Skill, are_catalog_files
from holdfast.core.stores import ArtifactStore
from holdfast.core.tools.decorator import Labelled, Tool, tool
from holdfast.core.trust import Trust


def read_skill_tool(store: ArtifactStore, catalog: Iterable[Skill]) -> Tool:
    """Build the tool that lets an agent read its skills.

    Skills of the catalog have the trust level of the agent's instructions. Skills of a workspace do not: anyone who
    can write there may have written them.

    Args:
        store: Stores the files, which `load_agent` has added.
        catalog: The skills of the worker's catalog.
    """
    own = tuple(catalog)

    def trust(addresses: Iterable[str]) -> Trust:
        return "agent" if are_catalog_files(addresses, own) else "tool"

    @tool(effect="read", trust="agent")
    async def read_skill(name: str = "", path: str = SKILL_FILE) -> Labelled:
        """Load a skill: instructions for a certain kind of task. Without a name, list the skills there are.

        Args:
            name: The skill's name.
            path: A file of the skill; SKILL.md says which ones matter.
        """
        session = await CallingRun.of().query("session")
        skills = AgentSpec.model_validate(session["spec"]).skills
        if not name:
            # The reason why a skill was left out may quote its files.
            complete = all(skill.files for skill in skills)
            label = trust(address for skill in skills for address in skill.files.values()) if complete else "tool"
            return Labelled(_listing(skills), label)
        skill = _find_skill(skills, name)
        if path not in skill.files:
            raise LookupError(f"skill {name!r} has no file {path[:200]!r}; it has: {', '.join(skill.files)}")
        address = skill.files[path]
        return Labelled(_format_file(skill, path, await store.get(address)), trust([address]))

    return read_skill


def _find_skill(skills: Sequence[SkillSpec], name: str) -> SkillSpec:
    matches = [skill for skill in skills if skill.name == name]
    for skill in matches:
        if skill.files:
            return skill
    if matches:
        raise LookupError(f"skill {name!r} cannot be used: {matches[0].description}")
    names = ", ".join(skill.name for skill in skills if skill.files)
    raise LookupError(f"there is no skill {name[:100]!r}; there are: {names or 'none'}")


def _listing(skills: Sequence[SkillSpec]) -> str:
    lines = [
        f"- {skill.name}: {skill.description}" if skill.files else f"- {skill.name} (left out): {skill.description}"
        for skill in skills
    ]
    return "\n".join(lines) or "[there are no skills]"


def _format_file(skill: SkillSpec, path: str, content: bytes) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return f"[{path} of skill {skill.name} is not text; it has {len(content):,} bytes]"
    others = [each for each in skill.files if each != path]
    if path != SKILL_FILE or not others:
        return text
    return f"{text}\n\n[Further files of this skill, for read_skill's `path`: {', '.join(others)}]"
