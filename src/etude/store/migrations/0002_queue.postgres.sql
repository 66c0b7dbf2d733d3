-- Times of the queue are seconds since 1970, by the clock of the database. A lower urgency number runs sooner.

-- `head_*` is the best ready action of an agent, so that one look at an index finds the next agent to run.
-- `running` is the action that a worker has claimed: an agent does one thing at a time.
CREATE TABLE agents (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL DEFAULT 'main',
    id text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    config text NOT NULL DEFAULT '{}',
    status text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'paused', 'destroying', 'destroyed')),
    running bigint,
    head_urgency integer,
    head_created double precision,
    head_seq bigint,
    state text NOT NULL DEFAULT '{}',
    step_no bigint NOT NULL DEFAULT 0,
    done integer NOT NULL DEFAULT 0,
    thread_id text COLLATE "C",
    tokens bigint NOT NULL DEFAULT 0,
    cost_usd double precision NOT NULL DEFAULT 0,
    last_output text,
    last_error text,
    created_at double precision NOT NULL,
    updated_at double precision NOT NULL,
    destroy_at double precision,
    UNIQUE (tenant, id)
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02);

CREATE INDEX agents_by_head ON agents (tenant, head_urgency, head_created, head_seq)
    WHERE status = 'active' AND running IS NULL AND head_seq IS NOT NULL;

CREATE INDEX agents_at_work ON agents (tenant) WHERE running IS NOT NULL;

CREATE INDEX agents_listening ON agents (tenant, id) WHERE kind = 'webhook' AND status = 'active';

CREATE INDEX agents_to_destroy ON agents (destroy_at) WHERE status = 'destroying';

CREATE TABLE actions (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL DEFAULT 'main',
    id text COLLATE "C" NOT NULL,
    agent bigint NOT NULL,
    kind text NOT NULL,
    payload text NOT NULL,
    urgency integer NOT NULL DEFAULT 100,
    created_at double precision NOT NULL,
    run_after double precision,
    state text NOT NULL CHECK (state IN ('ready', 'delayed', 'running', 'done', 'failed', 'cancelled')),
    attempts integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL DEFAULT 3,
    worker text COLLATE "C",
    lease_until double precision,
    token bigint NOT NULL DEFAULT 0,
    last_error text,
    processed_at double precision,
    UNIQUE (tenant, id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX actions_ready ON actions (agent, urgency, created_at, seq) WHERE state = 'ready';

CREATE INDEX actions_delayed ON actions (run_after) WHERE state = 'delayed';

CREATE INDEX actions_waiting ON actions (agent) WHERE state = 'delayed';

CREATE INDEX actions_leased ON actions (worker) WHERE state = 'running';

-- The last guard: whatever goes wrong above, an agent never has two running actions.
CREATE UNIQUE INDEX actions_running ON actions (agent) WHERE state = 'running';

-- What an agent did, written in the transaction that completes the action and changes the agent's state.
CREATE TABLE agent_steps (
    agent bigint NOT NULL,
    step_no bigint NOT NULL,
    action text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    input text NOT NULL,
    output text,
    outcome text NOT NULL,
    error text,
    started_at double precision NOT NULL,
    ended_at double precision NOT NULL,
    tokens bigint NOT NULL,
    cost_usd double precision NOT NULL,
    PRIMARY KEY (agent, step_no)
);

-- What was said to an agent beside its actions; open until a step has taken it in.
CREATE TABLE control (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    agent bigint NOT NULL,
    verb text NOT NULL,
    body text,
    created_at double precision NOT NULL,
    applied_at double precision
);

CREATE INDEX control_open ON control (agent, seq) WHERE applied_at IS NULL;

-- What is told to whoever listens, in the transaction of what it tells of.
CREATE TABLE hub_events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL DEFAULT 'main',
    topic text NOT NULL,
    agent text,
    body text NOT NULL,
    created_at double precision NOT NULL
);
