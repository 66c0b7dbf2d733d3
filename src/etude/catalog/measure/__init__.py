"""Measure a source: statistics of its tables and columns, read only through `db.sql`."""
