"""`RESULTS.md`: each bench writes a section of its own, and leaves those of the others alone."""

from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"

TITLE = "# Measurements\n"


def put(document: str, name: str, section: str) -> str:
    """Put `section` between the markers of that name, at the end of a document that has none; the rest stays."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    block = f"{begin}\n{section.strip()}\n{end}"
    before, found, rest = document.partition(begin)
    _, closed, after = rest.partition(end)
    if found and closed:
        return before + block + after
    return f"{document.rstrip()}\n\n{block}\n".lstrip()


def write(name: str, section: str) -> None:
    """Put `section` into the file."""
    document = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else TITLE
    RESULTS.write_text(put(document, name, section), encoding="utf-8")
