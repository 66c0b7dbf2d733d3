-- Runs for which a version of a playbook was eligible, and whether the coin showed it.
CREATE TABLE lesson_events (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    run_id TEXT NOT NULL,
    family TEXT NOT NULL,
    q REAL NOT NULL,
    shown INTEGER NOT NULL,
    at TEXT NOT NULL,
    PRIMARY KEY (tenant, name, version, run_id)
) WITHOUT ROWID;

-- What became of playbooks: added, edited, pinned, retired, quarantined; with the text of each version.
CREATE TABLE lesson_changes (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    change TEXT NOT NULL,
    reason TEXT NOT NULL,
    at TEXT NOT NULL,
    text TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX lesson_changes_by_name ON lesson_changes (tenant, name, id);
