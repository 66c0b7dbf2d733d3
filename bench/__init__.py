"""Benchmarks: each measures etude and plain DuckDB, or plain Python, side by side in one run."""
