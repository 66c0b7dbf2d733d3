-- Scripts that were compiled from runs, found by the key of the question they answer.
CREATE TABLE scripts (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    source TEXT NOT NULL,
    run_id TEXT NOT NULL,
    question TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    created_at TEXT NOT NULL,
    body TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX scripts_by_key ON scripts (tenant, key, state);

CREATE INDEX scripts_by_run ON scripts (run_id);

CREATE INDEX scripts_by_source ON scripts (tenant, source, state, id);

-- The runs that scripts were tried for, and what came of it.
CREATE TABLE script_uses (
    script_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    level TEXT NOT NULL,
    at TEXT NOT NULL,
    PRIMARY KEY (script_id, run_id)
) WITHOUT ROWID;
