-- Edits of code that were proposed, with what became of them.
CREATE TABLE edits (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    repo TEXT NOT NULL,
    proposer TEXT NOT NULL,
    status TEXT NOT NULL,
    created_at TEXT NOT NULL,
    body TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX edits_by_repo ON edits (tenant, repo, status, id);

-- Runs of suites, of the code as it is or with an edit: what scores are computed from.
CREATE TABLE suite_runs (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    repo TEXT NOT NULL,
    suite TEXT NOT NULL,
    edit_id TEXT,
    stage TEXT NOT NULL,
    seed INTEGER NOT NULL,
    passed INTEGER NOT NULL,
    total INTEGER NOT NULL,
    seconds REAL NOT NULL,
    at TEXT NOT NULL,
    body TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX suite_runs_by_repo ON suite_runs (tenant, repo, at);

CREATE INDEX suite_runs_by_edit ON suite_runs (edit_id);
