"""Requires the stores of Holdfast, which backups and pruning cover. A user's own store needs its own backups."""

from holdfast.composition.stores import Stores
from holdfast.errors import SettingsError
from holdfast.storage.artifacts import FolderArtifacts, PostgresArtifacts
from holdfast.storage.threads import PostgresThreads


def require_own_stores(stores: Stores) -> PostgresArtifacts | FolderArtifacts:
    """Return the store of artifacts.

    Raises:
        SettingsError: The catalog has its own store for threads or artifacts.
    """
    if isinstance(stores.threads, PostgresThreads) and isinstance(
        stores.artifacts, PostgresArtifacts | FolderArtifacts
    ):
        return stores.artifacts
    raise SettingsError(
        "the catalog keeps threads or artifacts in a store of its own, which Holdfast can neither back up nor prune: "
        "use the means of that store, and those of PostgreSQL for the ledger"
    )
