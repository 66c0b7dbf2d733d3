"""How a source is measured: statistics of its tables and columns, read through `db.sql` alone."""
