"""Sources: which models have names, where they are fetched from, and where they are kept."""

from satchel.sources.cache import cache_folder, checkpoints_folder, programs_folder
from satchel.sources.catalog import CATALOG, CatalogEntry
from satchel.sources.names import find_entry, known_entry
from satchel.sources.pull import pull

__all__ = [
    "CATALOG",
    "CatalogEntry",
    "cache_folder",
    "checkpoints_folder",
    "find_entry",
    "known_entry",
    "programs_folder",
    "pull",
]
