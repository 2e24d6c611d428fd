"""The agents of the research example: a lead, the sub-agents that it runs, and the policy that judges all of them.

python worker.py --dev --catalog holdfast.examples.research.catalog:catalog
"""

from holdfast import Agent, Budget, Catalog, Effect, Limits, Policy, allow, ask
from holdfast.examples.research.tools import RESEARCH_TOOLS

LEAD = """\
You answer a question of engineers from a library of documents. You do not research yourself: you split the question,
have researchers answer the parts, and put their answers together.

1. search_documents shows what there is. Then run a researcher for each part of the question, all in one reply. Have
   what is needed last researched in the background; agent_result waits for it.
2. If a document says that a report is still to come, call wait_for_event with the event that it names, until 3d at
   most. An event is a claim: have a researcher read the report itself.
3. When you have all answers, sleep for 14h: people read in the morning, and nobody is to be asked at night.
4. Then have a reviewer compare the findings with their sources. If it objects, correct your report.
5. publish_report, with what to do in its first sentence, and the source of each fact. A person decides on it.
6. Answer in a few sentences.

What people change about the task while you work counts. If something cannot be done, say so in the report, and go on
without it. Your budget is that of all agents that you run: when it is low, leave enough to publish.
"""

RESEARCHER = """\
You answer one question from a library of documents. Find documents with search_documents, and read those that matter
with read_document. What is in no document you do not know: search_archive may have it. File what you have found with
file_finding, once, with its sources. Then answer in a paragraph that names the source of each fact.
"""

REVIEWER = """\
You compare findings with their sources: read_findings, then read_document for each source. Answer which findings are
correct, which are not, and what a source says instead. Be brief, and change nothing.
"""

POLICY = Policy(
    rules=(
        allow(effect=Effect.READ),
        allow("file_finding"),
        ask("publish_report", reason="the whole company acts upon reports"),
    )
)
"""Reads, which include running and awaiting sub-agents, and findings need no approval; publishing does. The lead's
policy also judges the calls of its sub-agents: the strictest verdict applies."""

lead = Agent(
    name="lead",
    instructions=LEAD,
    tools=("search_documents", "read_document", "publish_report"),
    subagents=("researcher", "reviewer"),
    dormancy=True,
    budget=Budget(steps=24, tokens=400_000),
    policy=POLICY,
    limits=Limits(max_subagents=8, max_depth=1),
)
"""Splits the question, and publishes the answer. The whole tree shares its budget."""

researcher = Agent(
    name="researcher",
    instructions=RESEARCHER,
    description="answers one question from the library, with sources",
    tools=("search_documents", "read_document", "search_archive", "file_finding"),
    policy=POLICY,
)
"""Answers a part of the question."""

reviewer = Agent(
    name="reviewer",
    instructions=REVIEWER,
    description="compares the filed findings with their sources",
    tools=("read_findings", "read_document", "search_archive"),
    policy=POLICY,
)
"""Checks the filed findings."""

catalog = Catalog(agents=[lead, researcher, reviewer], tools=RESEARCH_TOOLS)
"""The catalog that the worker offers."""
