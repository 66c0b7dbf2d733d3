"""The example databases of the source tests, which the fuzz targets use too."""

from __future__ import annotations

from tests.sources.conftest import mariadb_server, mysql_shop, postgres_shop, sqlite_shop

__all__ = ["mariadb_server", "mysql_shop", "postgres_shop", "sqlite_shop"]
