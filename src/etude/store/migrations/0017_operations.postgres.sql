-- Runs that no retention setting deletes.
CREATE TABLE pins (
    run_id text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    reason text NOT NULL,
    at timestamptz NOT NULL
);

-- Which runs refer to an artifact: one that no run refers to is removed.
CREATE TABLE artifact_runs (
    hash text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (hash, tenant, run_id)
);

CREATE INDEX artifact_runs_by_run ON artifact_runs (run_id);

INSERT INTO artifact_runs (hash, tenant, run_id)
SELECT events.body -> 'artifact' ->> 'hash', runs.tenant, runs.id
FROM events JOIN runs ON runs.id = events.run_id
WHERE events.type IN ('artifact.created', 'step.finished', 'run.finished', 'script.compiled')
    AND events.body -> 'artifact' ->> 'hash' IS NOT NULL
ON CONFLICT DO NOTHING;

-- Artifacts whose last run was deleted; they are removed from the object store soon after.
CREATE TABLE unused_artifacts (
    hash text COLLATE "C" PRIMARY KEY,
    at timestamptz NOT NULL
);

-- Leases on work that one process at a time may do, such as pruning, and on objects that a backup copies.
CREATE TABLE leases (
    name text COLLATE "C" PRIMARY KEY,
    owner text NOT NULL,
    until timestamptz NOT NULL
);

-- Servers and workers, by the id whose lock shows that the process is alive.
CREATE TABLE processes (
    id text COLLATE "C" PRIMARY KEY,
    role text NOT NULL,
    host text NOT NULL,
    pid bigint NOT NULL,
    version text NOT NULL,
    address text NOT NULL,
    started_at timestamptz NOT NULL
);

-- What keeps a run: found by the run, for every run that is old enough to be deleted.
CREATE INDEX lesson_events_by_run ON lesson_events (run_id);

CREATE INDEX agents_by_thread ON agents (thread_id) WHERE thread_id IS NOT NULL;

-- 1 if the last action of the agent failed for good.
ALTER TABLE agents ADD COLUMN failed integer NOT NULL DEFAULT 0;

-- Actions that failed for good, which people look for; the other states have indexes already.
CREATE INDEX actions_failed ON actions (tenant, seq) WHERE state = 'failed';

-- Why someone did it, if they said so.
ALTER TABLE audit ADD COLUMN reason text;
