"""`RESULTS.md`: each benchmark replaces its own section."""

from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"

TITLE = "# Measurements\n"


def put(document: str, name: str, section: str) -> str:
    """Replace the text between the markers of that name by `section`; append it if there are none."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    block = f"{begin}\n{section.strip()}\n{end}"
    before, found, rest = document.partition(begin)
    _, closed, after = rest.partition(end)
    if found and closed:
        return before + block + after
    return f"{document.rstrip()}\n\n{block}\n".lstrip()


def write(name: str, section: str) -> None:
    """Write `section` to the file."""
    document = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else TITLE
    RESULTS.write_text(put(document, name, section), encoding="utf-8")
