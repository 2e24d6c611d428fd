"""The catalog of `tests.support.exposed`, for processes that import it by name."""

from tests.support import exposed

catalog = exposed.catalog()
