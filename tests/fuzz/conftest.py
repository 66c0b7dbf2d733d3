"""The shops of the sources' tests, which the fuzz targets attack."""

from __future__ import annotations

from tests.sources.conftest import mariadb_server, mysql_shop, postgres_shop, sqlite_shop

__all__ = ["mariadb_server", "mysql_shop", "postgres_shop", "sqlite_shop"]
