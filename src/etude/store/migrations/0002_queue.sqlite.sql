-- Times of the queue are seconds since 1970, by the clock of the database. A lower urgency number runs sooner.

-- `head_*` is the best ready action of an agent, so that one look at an index finds the next agent to run.
-- `running` is the action that a worker has claimed: an agent does one thing at a time.
CREATE TABLE agents (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL DEFAULT 'main',
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    config TEXT NOT NULL DEFAULT '{}',
    status TEXT NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'paused', 'destroying', 'destroyed')),
    running INTEGER,
    head_urgency INTEGER,
    head_created REAL,
    head_seq INTEGER,
    state TEXT NOT NULL DEFAULT '{}',
    step_no INTEGER NOT NULL DEFAULT 0,
    done INTEGER NOT NULL DEFAULT 0,
    thread_id TEXT,
    tokens INTEGER NOT NULL DEFAULT 0,
    cost_usd REAL NOT NULL DEFAULT 0,
    last_output TEXT,
    last_error TEXT,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    destroy_at REAL,
    UNIQUE (tenant, id)
);

CREATE INDEX agents_by_head ON agents (tenant, head_urgency, head_created, head_seq)
    WHERE status = 'active' AND running IS NULL AND head_seq IS NOT NULL;

CREATE INDEX agents_at_work ON agents (tenant) WHERE running IS NOT NULL;

CREATE INDEX agents_listening ON agents (tenant, id) WHERE kind = 'webhook' AND status = 'active';

CREATE INDEX agents_to_destroy ON agents (destroy_at) WHERE status = 'destroying';

CREATE TABLE actions (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL DEFAULT 'main',
    id TEXT NOT NULL,
    agent INTEGER NOT NULL,
    kind TEXT NOT NULL,
    payload TEXT NOT NULL,
    urgency INTEGER NOT NULL DEFAULT 100,
    created_at REAL NOT NULL,
    run_after REAL,
    state TEXT NOT NULL CHECK (state IN ('ready', 'delayed', 'running', 'done', 'failed', 'cancelled')),
    attempts INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER NOT NULL DEFAULT 3,
    worker TEXT,
    lease_until REAL,
    token INTEGER NOT NULL DEFAULT 0,
    last_error TEXT,
    processed_at REAL,
    UNIQUE (tenant, id)
);

CREATE INDEX actions_ready ON actions (agent, urgency, created_at, seq) WHERE state = 'ready';

CREATE INDEX actions_delayed ON actions (run_after) WHERE state = 'delayed';

CREATE INDEX actions_waiting ON actions (agent) WHERE state = 'delayed';

CREATE INDEX actions_leased ON actions (worker) WHERE state = 'running';

-- The last guard: whatever goes wrong above, an agent never has two running actions.
CREATE UNIQUE INDEX actions_running ON actions (agent) WHERE state = 'running';

-- What an agent did, written in the transaction that completes the action and changes the agent's state.
CREATE TABLE agent_steps (
    agent INTEGER NOT NULL,
    step_no INTEGER NOT NULL,
    action TEXT NOT NULL,
    kind TEXT NOT NULL,
    input TEXT NOT NULL,
    output TEXT,
    outcome TEXT NOT NULL,
    error TEXT,
    started_at REAL NOT NULL,
    ended_at REAL NOT NULL,
    tokens INTEGER NOT NULL,
    cost_usd REAL NOT NULL,
    PRIMARY KEY (agent, step_no)
) WITHOUT ROWID;

-- What was said to an agent beside its actions; open until a step has taken it in.
CREATE TABLE control (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    agent INTEGER NOT NULL,
    verb TEXT NOT NULL,
    body TEXT,
    created_at REAL NOT NULL,
    applied_at REAL
);

CREATE INDEX control_open ON control (agent, seq) WHERE applied_at IS NULL;

-- What is told to whoever listens, in the transaction of what it tells of.
CREATE TABLE hub_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL DEFAULT 'main',
    topic TEXT NOT NULL,
    agent TEXT,
    body TEXT NOT NULL,
    created_at REAL NOT NULL
);
