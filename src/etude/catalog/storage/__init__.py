"""Storage of catalogs, profiles and annotations."""
