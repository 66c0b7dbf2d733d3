-- Scripts that were compiled from runs, found by the key of the question they answer.
CREATE TABLE scripts (
    id text COLLATE "C" PRIMARY KEY,
    tenant text NOT NULL,
    key text COLLATE "C" NOT NULL,
    source text NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    question text NOT NULL,
    state text NOT NULL,
    reason text NOT NULL,
    created_at timestamptz NOT NULL,
    body json NOT NULL
);

CREATE INDEX scripts_by_key ON scripts (tenant, key, state);

CREATE INDEX scripts_by_run ON scripts (run_id);

CREATE INDEX scripts_by_source ON scripts (tenant, source, state, id);

-- The runs that scripts were tried for, and what came of it.
CREATE TABLE script_uses (
    script_id text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    level text NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (script_id, run_id)
);
