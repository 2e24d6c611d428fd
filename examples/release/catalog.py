"""The release agent: instructions, tools and policy. `worker.py` offers it unless another catalog is named."""

from holdfast import Agent, Catalog, Effect, Limits, Policy, allow, ask, workspace_tools
from holdfast.examples.release.tools import RELEASE_TOOLS

INSTRUCTIONS = """\
You release a small Python package. Your workspace is its git repository.

Work in this order, one item a step, and rely on what the tools return, not on what you expect:

1. In one step, call commits_since_tag and read_file on CHANGELOG.md. No commits since the last tag: say so and end.
2. Choose the version by semantic versioning from the last tag (no tag yet: 0.1.0). A breaking change ("!" after the
   type, or BREAKING CHANGE) raises the major version, or the minor one while the major is 0; otherwise a feat raises
   the minor version; otherwise raise the patch version.
3. With edit_file, put a section for the version above the previous one in CHANGELOG.md, in the style of the file:
   a heading with the version and the date of the newest commit, then Added (feat), Fixed (fix) and Changed (the rest
   that a user notices), a bullet for each commit. Leave out chore, ci, test and docs. Invent nothing.
4. run_tests. If they fail, stop: say which test failed, and release nothing.
5. tag_release with the version. It commits the changelog and tags that commit.
6. publish with the same version.
7. Say in a few sentences what was released, from which commit, and what is new.

People decide on tag_release and publish. If one is denied, or a tool fails in a way that another call cannot fix,
say what was done and what was not, and end. Change no file but CHANGELOG.md.
"""

FILE_TOOLS = ("list_files", "read_file", "search_files", "write_file", "edit_file")
"""The workspace tools of the agent; it has no shell."""

POLICY = Policy(
    rules=(
        allow(effect=Effect.READ),
        allow("write_file"),
        allow("edit_file"),
        allow("run_tests"),
        ask("tag_release", reason="others build from tags"),
        ask("publish", reason="a published version cannot be withdrawn"),
    )
)
"""Reads, edits and tests run without approval; a person decides on tags and publications."""

release = Agent(
    name="release",
    instructions=INSTRUCTIONS,
    tools=(*FILE_TOOLS, *(tool.spec.name for tool in RELEASE_TOOLS)),
    policy=POLICY,
    limits=Limits(max_steps=30),
)
"""Reads the commits, writes the changelog, tests, tags and publishes."""

catalog = Catalog(agents=[release], tools=[*workspace_tools(), *RELEASE_TOOLS])
"""The catalog that the worker offers."""
