"""The tables of forgeries in the docs have the rows and verdicts that are tried on real servers."""

from tests.docs.pages import DOCS
from tests.support.forgeries import FORGERIES, LIMITS


def test_the_tables_have_every_forgery_and_its_verdicts() -> None:
    """A forgery that is added, renamed or judged differently is a row that has to be changed."""
    page = (DOCS / "explanation/security.md").read_text(encoding="utf-8")
    section = page.partition("## Forgeries\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    words = [[cell.strip().replace(" ", "_") for cell in row.split("|")[2:5]] for row in rows]
    names = [row.split("|")[1].strip() for row in rows]
    shown = {name: verdicts for name, verdicts in zip(names, words, strict=True) if name not in ("forged", "---")}
    assert shown == {each.name: list(each[2:]) for each in (*FORGERIES, *LIMITS)}
