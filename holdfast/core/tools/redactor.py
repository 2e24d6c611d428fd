"""Redacts secrets in text that arrives in pieces: a secret may be cut at any place."""

from holdfast.core.tools.secrets import Secrets


class Redactor:
    """Redacts one text. Its results, joined, are what `Secrets.redact` returns for the whole text.

    It holds back a tail only if that may be the beginning of a secret.

    Args:
        secrets: The secrets to redact.
    """

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._forms = secrets.forms
        self._longest = max((len(forms[0]) for forms in self._forms.values()), default=0)
        self._held = ""

    def feed(self, text: str) -> str:
        """Return the next redacted text."""
        if (pattern := self._secrets.pattern) is None:
            return text
        text = self._held + text
        done: list[str] = []
        at = 0
        while True:
            end = self._may_begin(text, at)
            found = pattern.search(text, at)
            if found is None or found.start() >= end:
                break
            done += [text[at : found.start()], self._secrets.redact(found[0])]
            at = found.end()
        self._held = text[end:]
        return "".join([*done, text[at:end]])

    def end(self) -> str:
        """Return the rest."""
        rest, self._held = self._held, ""
        return self._secrets.redact(rest)

    def _may_begin(self, text: str, at: int) -> int:
        """Return where the tail begins that may be the beginning of a secret; the length of the text if there is none.

        A whole secret may be the beginning of a longer one.
        """
        for start in range(max(at, len(text) - self._longest + 1), len(text)):
            if forms := self._forms.get(text[start]):
                tail = text[start:]
                if any(len(form) > len(tail) and form.startswith(tail) for form in forms):
                    return start
        return len(text)
