-- Edits of code that were proposed, with what became of them.
CREATE TABLE edits (
    id text COLLATE "C" PRIMARY KEY,
    tenant text NOT NULL,
    repo text NOT NULL,
    proposer text NOT NULL,
    status text NOT NULL,
    created_at timestamptz NOT NULL,
    body json NOT NULL
);

CREATE INDEX edits_by_repo ON edits (tenant, repo, status, id);

-- Runs of suites, of the code as it is or with an edit: what scores are computed from.
CREATE TABLE suite_runs (
    id text COLLATE "C" PRIMARY KEY,
    tenant text NOT NULL,
    repo text NOT NULL,
    suite text NOT NULL,
    edit_id text COLLATE "C",
    stage text NOT NULL,
    seed bigint NOT NULL,
    passed bigint NOT NULL,
    total bigint NOT NULL,
    seconds double precision NOT NULL,
    at timestamptz NOT NULL,
    body json NOT NULL
);

CREATE INDEX suite_runs_by_repo ON suite_runs (tenant, repo, at);

CREATE INDEX suite_runs_by_edit ON suite_runs (edit_id);
