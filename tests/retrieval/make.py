"""Writes the labelled set: `python -m tests.retrieval.make`. The same set every time.

Each fact has questions with its own words, with other forms of them, and in words that share little with it; and one of
the first kind with spelling mistakes. Distractors state similar facts about other subjects, in the same words.
"""

import json
import random
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent

FACTS: tuple[tuple[str, str, str, str], ...] = (
    # the item | a query in its words | in other forms | in other words
    (
        "Releases of the billing service go out on Tuesdays before noon.",
        "when do releases of the billing service go out",
        "which day is billing released",
        "what day of the week may we ship the billing service",
    ),
    (
        "Alice prefers short summaries with bullet points.",
        "does Alice prefer short summaries",
        "summarising for Alice: what is her preference",
        "how should a report for Alice look, bullet points or prose",
    ),
    (
        "The staging database is restored from the nightly backup at 03:00 UTC.",
        "when is the staging database restored",
        "restoring staging databases from backups",
        "what happens to staging during the night",
    ),
    (
        "Use the mirror in Frankfurt when the package registry is slow.",
        "which mirror to use when the package registry is slow",
        "registries for packages are slowing down, any mirrors",
        "downloads of dependencies crawl, is there a registry closer to Europe such as Frankfurt",
    ),
    (
        "The changelog must name the ticket of every fix.",
        "must the changelog name the ticket",
        "naming tickets of fixes in changelogs",
        "what has to be written next to a fix in the changelog",
    ),
    (
        "Bob approves deployments to production; in his absence Carol does.",
        "who approves deployments to production",
        "approval for deploying into production when Bob is absent",
        "whom do I ask for a go in production while Bob is on holiday",
    ),
    (
        "The flaky test in the payments suite is test_refund_twice; it depends on the clock.",
        "what is the flaky test in the payments suite",
        "tests that flake because they depended on clocks",
        "payments tests fail now and then, which one is it",
    ),
    (
        "Customer Nordwind pays in Swiss francs and wants invoices in German.",
        "in what currency does customer Nordwind pay",
        "invoicing Nordwind: language of the invoice",
        "which language and money for Nordwind",
    ),
    (
        "The API gateway drops requests larger than 10 megabytes.",
        "what requests does the API gateway drop",
        "gateways dropping large request",
        "an upload over 10 megabytes vanishes in front of the service",
    ),
    (
        "The nightly crawler ignores pages without a canonical link.",
        "which pages does the nightly crawler ignore",
        "crawling at night, ignored page links",
        "why is a page missing from the crawl, canonical",
    ),
    (
        "Passwords of the test accounts are rotated every quarter.",
        "when are passwords of the test accounts rotated",
        "rotating the password of a testing account",
        "my login for the test account stopped working this quarter",
    ),
    (
        "The warehouse in Rotterdam closes at 16:00 on Fridays.",
        "when does the warehouse in Rotterdam close on Fridays",
        "closing time of Rotterdam's warehouses",
        "can a lorry still unload in Rotterdam on Friday evening",
    ),
    (
        "Dana's pull requests need a second reviewer from the security group.",
        "who must review Dana's pull requests",
        "reviewing a pull request of Dana, second reviewers",
        "may I merge what Dana wrote after one review",
    ),
    (
        "The search index is rebuilt after every change of the synonyms file.",
        "when is the search index rebuilt",
        "rebuilding indexes when synonyms changed",
        "I edited the synonyms, do I need to do anything for search",
    ),
    (
        "Log lines of the scheduler carry the shard number in the field `part`.",
        "which field carries the shard number in log lines of the scheduler",
        "logging of schedulers: shards and numbers",
        "how do I tell from the scheduler's log which shard it was",
    ),
    (
        "The embedded sensor reports temperatures in tenths of a kelvin.",
        "in which unit does the embedded sensor report temperatures",
        "sensors reporting a temperature, which units",
        "the sensor says 2931, how warm is that in kelvin",
    ),
    (
        "Erin wants to be told before a migration locks a table for over a minute.",
        "who wants to be told before a migration locks a table",
        "telling Erin of migrations that lock tables",
        "whom to warn about a long table lock",
    ),
    (
        "The licence of the map tiles forbids caching them beyond a day.",
        "what does the licence of the map tiles forbid",
        "licensing of cached map tile",
        "how long may we keep tiles of the map",
    ),
    (
        "The mobile app still calls the old endpoint /v1/orders until version 8.",
        "which endpoint does the mobile app call",
        "old endpoints called by mobile apps",
        "can we switch off /v1/orders already",
    ),
    (
        "Translations into Polish are checked by the agency Slowo.",
        "who checks translations into Polish",
        "checking a Polish translation",
        "Polish texts for the app: which agency",
    ),
    (
        "The build cache is cleared when the compiler is upgraded.",
        "when is the build cache cleared",
        "clearing caches of builds, upgrading a compiler",
        "builds are slow since the compiler changed, what about the cache",
    ),
    (
        "Refunds over 500 euros need the finance lead.",
        "which refunds need the finance lead",
        "refunding more than 500 euro",
        "a customer wants 800 euros refunded, who decides",
    ),
    (
        "The office in Lisbon has no meeting room with a camera.",
        "which office has no meeting room with a camera",
        "meeting rooms and cameras in Lisbon's offices",
        "can we make a video call from Lisbon",
    ),
    (
        "Frank maintains the Terraform modules for networking.",
        "who maintains the Terraform modules for networking",
        "maintainer of the network's Terraform module",
        "whom to ask about Terraform when a subnet is wrong in networking",
    ),
    (
        "The newsletter goes to subscribers in Canada with a separate consent text.",
        "where does the newsletter go with a separate consent text",
        "consenting subscribers of newsletters in Canada",
        "mailing Canadians of Canada: what is special about the newsletter",
    ),
    (
        "The GPU nodes are reserved for training between 20:00 and 06:00.",
        "when are the GPU nodes reserved for training",
        "reservation of a GPU node to train",
        "can I run an experiment on the GPU nodes at midnight",
    ),
    (
        "The feature flag dark_checkout is on for one percent of visitors.",
        "for how many visitors is the feature flag dark_checkout on",
        "flags of features: percentage of a visitor in checkout",
        "who sees dark_checkout at the moment",
    ),
    (
        "Heidi reads mail only in the morning; call her when it is urgent.",
        "when does Heidi read mail",
        "reading of mails by Heidi, urgency and calls",
        "how do I reach Heidi in the afternoon",
    ),
    (
        "The archive bucket is replicated to Oslo and must never be emptied.",
        "where is the archive bucket replicated to",
        "replication of archived buckets, emptying",
        "is it safe to clean up the bucket in Oslo",
    ),
    (
        "Integration tests need the environment variable SANDBOX_TOKEN.",
        "which environment variable do integration tests need",
        "testing the integration: needed variables of environments",
        "the integration tests answer 401 here, what is missing from the environment",
    ),
    (
        "The legacy importer treats empty cells as zero.",
        "how does the legacy importer treat empty cells",
        "importing with an empty cell, treatment",
        "after the import by the legacy tool zeros appear",
    ),
    (
        "Ivan's team counts story points on a Fibonacci scale.",
        "how does Ivan's team count story points",
        "counting a story's point in teams of Ivan",
        "is 4 a possible number of points for Ivan",
    ),
    (
        "The websocket server closes idle connections after 90 seconds.",
        "when does the websocket server close idle connections",
        "closing a connection that idles, websockets",
        "browsers lose the websocket after a minute and a half",
    ),
    (
        "The supplier Brightwater delivers filters on odd weeks only.",
        "when does the supplier Brightwater deliver filters",
        "delivery of a filter by suppliers: Brightwater",
        "will Brightwater come in week 42",
    ),
    (
        "Judith signs contracts above 20,000 euros together with the board.",
        "who signs contracts above 20,000 euros",
        "signing a contract of large sums, Judith and boards",
        "is the signature of Judith enough for a large contract",
    ),
    (
        "The profiler must not run on hosts that serve payments.",
        "on which hosts must the profiler not run",
        "running profilers where a host serves payment",
        "may I profile the payments machines",
    ),
    (
        "Screenshots for the manual are taken at 1280 by 800 with the light theme.",
        "at which size are screenshots for the manual taken",
        "taking a screenshot, themes in manuals",
        "how large must a picture of the screen in the manual be",
    ),
    (
        "The queue worker acknowledges messages before it handles them.",
        "when does the queue worker acknowledge messages",
        "acknowledging a message, workers of queues",
        "why are messages lost when the worker of the queue crashes",
    ),
    (
        "Karl is allergic to nuts; order catering accordingly.",
        "what is Karl allergic to",
        "allergies of Karl, ordering a caterer",
        "food for the offsite with Karl",
    ),
    (
        "The parser accepts dates as year, month, day only.",
        "how does the parser accept dates",
        "parsing a date: accepted orders of months and days",
        "the file has 31.12.2025 and the parser refuses it",
    ),
)

SUBJECTS = (
    *("billing service", "search index", "payments suite", "staging database", "mobile app", "API gateway"),
    *("newsletter", "warehouse", "scheduler", "build cache", "archive bucket", "nightly crawler", "Terraform modules"),
    *("queue worker", "test accounts", "map tiles", "integration tests", "legacy importer", "changelog", "manual"),
)
DISTRACTORS = (
    "The {one} was discussed together with the {two}; nothing was decided.",
    "{who} asked about the {one} and the {two} last week.",
    "A ticket about the {one} is open since the {two} changed.",
    "{who} prefers to talk about the {one} after the releases are out.",
    "Documentation of the {one} moved next to that of the {two}.",
    "The {one} must be tested again when the {two} is upgraded.",
    "{who} approves changes of the {one}, not of the {two}.",
)
PEOPLE = ("Alice", "Bob", "Carol", "Dana", "Erin", "Frank", "Heidi", "Ivan", "Judith", "Karl")
ITEMS = 300


def misspell(text: str, chance: random.Random) -> str:
    """Return `text` with two letters swapped, or one removed, in each of its three longest words."""
    words = text.split()
    for place in sorted(range(len(words)), key=lambda place: -len(words[place]))[:3]:
        word = words[place]
        at = chance.randrange(1, len(word) - 2)
        swapped = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
        words[place] = swapped if chance.random() < 0.5 else word[:at] + word[at + 1 :]
    return " ".join(words)


def generate() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the items and the queries."""
    chance = random.Random(20_260)
    items: list[dict[str, Any]] = []
    queries: list[dict[str, Any]] = []
    for number, (text, words, forms, other) in enumerate(FACTS):
        items.append({"label": f"fact-{number}", "text": text})
        wordings = {"words": words, "forms": forms, "other words": other, "misspelt": misspell(words, chance)}
        queries += [{"kind": kind, "query": query, "label": f"fact-{number}"} for kind, query in wordings.items()]
    texts = {item["text"] for item in items}
    while len(items) < ITEMS:
        one, two = chance.sample(SUBJECTS, 2)
        text = chance.choice(DISTRACTORS).format(one=one, two=two, who=chance.choice(PEOPLE))
        if text not in texts:
            texts.add(text)
            items.append({"label": f"distractor-{len(items)}", "text": text})
    chance.shuffle(items)
    return items, queries


def main() -> None:
    """Write both files."""
    for name, rows in zip(("items", "queries"), generate(), strict=True):
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (FOLDER / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
