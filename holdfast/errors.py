"""The errors Holdfast raises on purpose. Each message says what happened, which id, and what to do next.

    HoldfastError
    ├── SettingsError        a setting has a value that cannot be used
    ├── LoadError            "module:attribute" does not lead to the object asked for
    ├── StackError           a server that is needed cannot start, or lacks something
    ├── ServerUnreachable    no Temporal server answers
    ├── ToolSignatureError   a function cannot become a tool
    ├── CatalogError         agents and tools of a catalog do not fit together
    ├── TranscriptMismatch   messages do not have the digest that the workflow computed
    └── HistoryUnreadable    a Temporal history is no agent run's, is cut short, or does not decode

What goes wrong inside a run is not raised: it is an event (`holdfast.events`) or a tool result the LLM can read.
"""


class HoldfastError(Exception):
    """Base of every error Holdfast raises on purpose; its text is fit to show to a user."""


class SettingsError(HoldfastError):
    """A setting has a value that cannot be used."""


class LoadError(HoldfastError):
    """`module:attribute` does not lead to the object asked for."""


class StackError(HoldfastError):
    """A server that is needed cannot start, or lacks something."""


class ServerUnreachable(HoldfastError):
    """No Temporal server answers."""


class ToolSignatureError(HoldfastError):
    """A function cannot become a tool: its parameters do not translate to a JSON schema."""


class CatalogError(HoldfastError):
    """The agents and tools of a catalog do not fit together."""


class TranscriptMismatch(HoldfastError):
    """Messages read back do not have the digest that the workflow computed."""


class HistoryUnreadable(HoldfastError):
    """A Temporal history is no agent run's, is cut short, or does not decode."""
