"""Skills: how folders with any content are read, and which of a workspace's skills an agent gets."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import ToolContext
from holdfast.core.agents.agent import SkillSpec
from holdfast.core.agents.skills import (
    MAX_BYTES,
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_SKILLS,
    Skill,
    SkillInvalid,
    add_workspace_skills,
    are_catalog_files,
    limit_excess,
    read_front_matter,
    skill_from_files,
    unusable,
)
from holdfast.core.base.canonical import address_of
from holdfast.workspace.file_tools import edit_file, write_file
from holdfast.workspace.files import replace
from holdfast.workspace.memory.skills import load_skills, workspace_skills
from holdfast.workspace.paths import OutsideWorkspace

NOTES = "---\nname: release-notes\ndescription: Use it when you write release notes.\n---\n# How\n\nBriefly.\n"


def skill(name: str, *, files: int = 1) -> Skill:
    """Return a skill with that many files."""
    text = NOTES.replace("release-notes", name).encode()
    return Skill(name, f"Use it for {name}.", {"SKILL.md": text, **{f"f{n}": b"x" for n in range(1, files)}})


def put(folder: Path, text: str | bytes = NOTES) -> Path:
    """Turn a folder into a skill."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def test_a_folder_of_skills_is_read_by_name(tmp_path: Path) -> None:
    """Each folder is a skill with all of its files, except those whose names begin with a dot or an underscore."""
    put(tmp_path / "b-notes")
    put(tmp_path / "a", NOTES.replace("release-notes", "audit").replace("\n", "\r\n"))
    (tmp_path / "a" / "scripts").mkdir()
    (tmp_path / "a" / "scripts" / "run.bin").write_bytes(b"\x00\xff")
    for left_out in (".hidden", "_draft", "a/.git", "a/__pycache__"):
        (tmp_path / left_out).mkdir()
        (tmp_path / left_out / "file").touch()
    (tmp_path / "README.md").touch()

    audit, notes = load_skills(tmp_path)

    assert (audit.name, notes.name) == ("audit", "release-notes")
    assert set(audit.files) == {"SKILL.md", "scripts/run.bin"}
    assert notes.spec == SkillSpec(
        name="release-notes",
        description="Use it when you write release notes.",
        files={"SKILL.md": address_of(NOTES.encode())},
    )


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("description: Use when: someone asks", "Use when: someone asks"),
        ("description: Answers issues such as #12 and #13", "Answers issues such as #12 and #13"),
        ("description: Use it for a\n  report: of #12\n\n  and more", "Use it for a report: of #12 and more"),
        ("description: what follows:", "what follows:"),
        ("description:\tUse: a tab", "Use: a tab"),
        ('description: "Use" when: asked', '"Use" when: asked'),
        ("description: [draft] Use it", "[draft] Use it"),
        ("description: `make` does: all", "`make` does: all"),
        ("description: @ann knows: all", "@ann knows: all"),
        ("description: *really* use it", "*really* use it"),
        ('description: "Use when: asked #1"', "Use when: asked #1"),
        ("description: 'a #1'", "a #1"),
        ("description: >-\n  Use when: asked\n  for #1", "Use when: asked for #1"),
        ("license: MIT: see LICENSE\ndescription: d", "d"),
        ("# a comment: here\ndescription: d", "d"),
        ("tools: [a, b] # two\ndescription: d", "d"),
    ],
)
@pytest.mark.parametrize("form", ["{}", "\ufeff{}"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_front_matter_is_read_as_people_write_it(written: str, read: str, form: str, end: str) -> None:
    """Text that YAML would reject or cut, although it can mean only one thing, is read as its author sees it."""
    text = form.format(f"---\nname: a\n{written}\n---\nBody\n").replace("\n", end)
    assert skill_from_files({"SKILL.md": text.encode()}, where="a").description == read


def test_front_matter_without_an_end_is_rejected() -> None:
    """The message names the missing line."""
    with pytest.raises(SkillInvalid, match="put a line --- after name and description"):
        read_front_matter("---\nname: a\ndescription: d\n", file="f")


def test_the_folder_of_one_skill_gives_that_skill(tmp_path: Path) -> None:
    """A folder that is itself a skill is no empty set; one that also contains skills is rejected."""
    put(tmp_path)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "run.sh").touch()
    (skills,) = load_skills(tmp_path)
    assert (skills.name, set(skills.files)) == ("release-notes", {"SKILL.md", "scripts/run.sh"})
    put(tmp_path / "other")
    with pytest.raises(SkillInvalid, match=r"is a skill itself and has others in it \(other\)"):
        load_skills(tmp_path)


def test_a_description_becomes_one_line() -> None:
    """A description over several lines becomes one line of the prompt and cannot start another."""
    text = "---\nname: a\ndescription: >-\n  Use it\n  when\n\n  ## asked\n---"
    assert read_front_matter(text, file="f") == ("a", "Use it when ## asked")


BOMB = "a: &a [x,x]\nb: &b [*a,*a]\nname: a\ndescription: d"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no front matter: begin it with a line ---"),
        ("# How\n---\nname: a\n---\n", "has no front matter"),
        ("---\nname: a\ndescription: d\n", "has no front matter"),
        ("---\n---\n", "has no fields"),
        ("---\n- a\n---\n", "has no fields"),
        ("---\nname: [a\n---\n", "is not YAML"),
        ("---\nname: !!python/object/apply:os.system [ls]\n---\n", "is not YAML"),
        (f"---\n{BOMB}\n---\n", "has an alias"),
        (f"---\n{'[' * 9_000}\n---\n", "nested too deeply"),
        (f"---\n{'- ' * 7_900}\n---\n", "nested too deeply"),
        (f"---\n{'? ' * 7_900}\n---\n", "nested too deeply"),
        (f"---\n{'{a: ' * 3_900}\n---\n", "nested too deeply"),
        (f"---\nname: {'9' * 9_000}\n---\n", "is not YAML"),
        (f"---\n# {'x' * 20_000}\n---\n", "over 16,000 characters"),
        ("---\ndescription: d\n---\n", "has no name; add a line name: …"),
        ("---\nname: a\n---\n", "has no description"),
        ("---\nname: 12\ndescription: d\n---\n", "the name is not text but of type int; put it in quotes"),
        ("---\nname: a\ndescription: [d]\n---\n", "the description is not text but of type list"),
        ("---\nname: 2024-01-01\ndescription: d\n---\n", "is not text but of type date"),
        ("---\nname: Notes\ndescription: d\n---\n", "'Notes' is not valid; use at most 64 lower-case letters"),
        (f"---\nname: {'a' * 65}\ndescription: d\n---\n", "at most 64"),
        (f"---\nname: a\ndescription: {'d' * 1_025}\n---\n", "it has 1,025 characters"),
        ("---\nname: a\ndescription: ' '\n---\n", "it is empty"),
        ('---\nname: a\ndescription: "\\ud800"\n---\n', "must be text"),
        (b"---\nname: \xff\n---\n", "is not UTF-8 text"),
    ],
)
def test_an_unusable_skill_file_is_rejected(text: str | bytes, words: str, tmp_path: Path) -> None:
    """The error names the file and the correction."""
    put(tmp_path / "notes", text)
    with pytest.raises(SkillInvalid, match=words) as refused:
        load_skills(tmp_path)
    assert str(tmp_path / "notes" / "SKILL.md") in str(refused.value)


@given(st.text() | st.text(alphabet="-:a \n[]{}&*!\"'|>#").map(lambda text: f"---\n{text}\n---\n"))
def test_any_text_is_a_skill_or_a_typed_error(text: str) -> None:
    """Any text in a SKILL.md gives a skill or the typed error."""
    try:
        name, description = read_front_matter(text, file="f")
    except SkillInvalid:
        return
    assert name
    assert "\n" not in description


def test_an_unreadable_folder_is_rejected(tmp_path: Path) -> None:
    """The worker does not start; the error names the folder and the missing file."""
    with pytest.raises(SkillInvalid, match=r"cannot be read from .*nowhere: No such file"):
        load_skills(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SkillInvalid, match=r"empty has no SKILL\.md"):
        load_skills(tmp_path)


def test_a_skills_size_is_limited() -> None:
    """A skill with over 100 files, 1 MB in a file or 5 MB in all is rejected by name."""
    text = {"SKILL.md": NOTES.encode()}
    assert skill_from_files(text | {f"f{n}": b"" for n in range(MAX_FILES - 1)}, where="s").name == "release-notes"
    with pytest.raises(SkillInvalid, match="s has more than 100 files"):
        skill_from_files(text | {f"f{n}": b"" for n in range(MAX_FILES)}, where="s")
    with pytest.raises(SkillInvalid, match=r"s/f has 1,000,001 bytes"):
        skill_from_files(text | {"f": bytes(MAX_FILE_BYTES + 1)}, where="s")
    with pytest.raises(SkillInvalid, match="s has more than 5,000,000 bytes"):
        skill_from_files(text | {f"f{n}": bytes(MAX_FILE_BYTES) for n in range(MAX_BYTES // MAX_FILE_BYTES)}, where="s")


@pytest.mark.parametrize("name", ["huge", "link", "pipe", "linked folder", "bad\udcffname"])
def test_only_regular_files_make_a_skill(name: str, tmp_path: Path) -> None:
    """Links may lead anywhere, a pipe would block and a huge file fill memory, so none of them is read."""
    folder = put(tmp_path / "notes")
    match name:
        case "huge":
            with (folder / name).open("wb") as file:
                file.truncate(10**12)
        case "link":
            (folder / name).symlink_to("/etc/hostname")
        case "pipe":
            os.mkfifo(folder / name)
        case "linked folder":
            (folder / name).symlink_to("/etc")
        case _:
            (folder / name).touch()
    with pytest.raises(SkillInvalid) as refused:
        load_skills(tmp_path)
    assert str(refused.value).encode()


def test_a_broken_skill_of_a_workspace_is_reported(tmp_path: Path) -> None:
    """The run can begin; one line of the prompt gives the omitted skill and the reason."""
    skills = tmp_path / ".agents" / "skills"
    put(skills / "broken", "no fences")
    put(skills / "notes")
    (skills / "no-skill").mkdir()
    (skills / "linked").symlink_to("/etc")
    (skills / "file").touch()

    broken, linked, notes = workspace_skills(tmp_path)

    assert isinstance(notes, Skill)
    assert linked == unusable("linked", ".agents/skills/linked is a link; put the skill there itself")
    assert isinstance(broken, SkillSpec)
    assert (broken.name, broken.files) == ("broken", {})
    assert broken.description.startswith(".agents/skills/broken/SKILL.md has no front matter")


@pytest.mark.parametrize("there", ["nothing", "a file", "a link out", "a loop"])
def test_a_workspace_without_skills_has_none(there: str, tmp_path: Path) -> None:
    """A missing folder, a file in its place or a link out of the workspace is no error."""
    match there:
        case "a file":
            (tmp_path / ".agents").touch()
        case "a link out":
            (tmp_path / ".agents").symlink_to("/etc")
        case "a loop":
            (tmp_path / ".agents").symlink_to(".agents")
    skills = list(workspace_skills(tmp_path))
    assert [each.name for each in skills] == ([".agents/skills"] if "link" in there or "loop" in there else [])


def test_a_catalogs_skill_replaces_a_workspaces() -> None:
    """A skill in a workspace cannot replace one of the same name in the catalog."""
    own, other, third = skill("a"), skill("a", files=2), skill("b")
    usable, left_out = add_workspace_skills([own], [other, third])
    assert usable == [own, third]
    assert left_out == [unusable("a", "there is another skill of this name")]


def test_the_number_of_skills_and_files_is_limited() -> None:
    """Skills of the workspace beyond a hundred skills or a thousand files are left out, as a run records each file."""
    own = [skill(f"s{n}", files=10) for n in range(MAX_SKILLS - 1)]
    assert not limit_excess([*own, skill("last", files=10)])
    usable, left_out = add_workspace_skills(own, [skill("big", files=11), skill("last")])
    assert [each.name for each in usable[99:]] == ["last"]
    assert "100 skills, 1,000 files" in left_out[0].description


def test_only_identical_files_count_as_the_catalogs() -> None:
    """A skill of the same name with other content does not count as the catalog's."""
    own = skill("a", files=2)
    assert are_catalog_files(own.spec.files.values(), [own])
    assert not are_catalog_files([address_of(b"other")], [own])


@pytest.mark.parametrize("path", [".agents/STRATEGIES.md", "sub/.Agents/skills/a/SKILL.md"])
def test_file_tools_do_not_write_instructions_for_later_runs(path: str, tmp_path: Path) -> None:
    """Only a caller that has obtained approval may write them and says so with `instructions`."""
    (tmp_path / ".agents").mkdir()
    (tmp_path / ".agents" / "STRATEGIES.md").write_text("old")
    context = ToolContext(thread="t", workspace=tmp_path, key="k", attempt=1)
    with pytest.raises(OutsideWorkspace, match="instructs later runs"):
        write_file(path, "new", context=context)
    with pytest.raises(OutsideWorkspace, match="instructs later runs"):
        edit_file(".agents/STRATEGIES.md", "old", new="new", context=context)
    replace(tmp_path, path, content=b"new", key="k", instructions=True)
    assert (tmp_path / path).read_text() == "new"
