"""Where catalogs, profiles and annotations are kept and read again."""
