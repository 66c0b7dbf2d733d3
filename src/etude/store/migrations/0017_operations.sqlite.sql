-- Runs that no retention setting deletes.
CREATE TABLE pins (
    run_id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    reason TEXT NOT NULL,
    at TEXT NOT NULL
) WITHOUT ROWID;

-- Which runs refer to an artifact: one that no run refers to is removed.
CREATE TABLE artifact_runs (
    hash TEXT NOT NULL,
    tenant TEXT NOT NULL,
    run_id TEXT NOT NULL,
    PRIMARY KEY (hash, tenant, run_id)
) WITHOUT ROWID;

CREATE INDEX artifact_runs_by_run ON artifact_runs (run_id);

INSERT OR IGNORE INTO artifact_runs (hash, tenant, run_id)
SELECT json_extract(events.body, '$.artifact.hash'), runs.tenant, runs.id
FROM events JOIN runs ON runs.id = events.run_id
WHERE events.type IN ('artifact.created', 'step.finished', 'run.finished', 'script.compiled')
    AND json_extract(events.body, '$.artifact.hash') IS NOT NULL;

-- Artifacts whose last run was deleted; they are removed from the object store soon after.
CREATE TABLE unused_artifacts (
    hash TEXT PRIMARY KEY,
    at TEXT NOT NULL
) WITHOUT ROWID;

-- Leases on work that one process at a time may do, such as pruning, and on objects that a backup copies.
CREATE TABLE leases (
    name TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    until TEXT NOT NULL
) WITHOUT ROWID;

-- Servers and workers, by the id whose lock shows that the process is alive.
CREATE TABLE processes (
    id TEXT PRIMARY KEY,
    role TEXT NOT NULL,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    version TEXT NOT NULL,
    address TEXT NOT NULL,
    started_at TEXT NOT NULL
) WITHOUT ROWID;

-- What keeps a run: found by the run, for every run that is old enough to be deleted.
CREATE INDEX lesson_events_by_run ON lesson_events (run_id);

CREATE INDEX agents_by_thread ON agents (thread_id) WHERE thread_id IS NOT NULL;

-- The words of a run are removed with the run.
CREATE TRIGGER runs_lose_words AFTER DELETE ON runs BEGIN
    INSERT INTO run_words (run_words, rowid, words) VALUES ('delete', old.no, old.search);
END;

-- 1 if the last action of the agent failed for good.
ALTER TABLE agents ADD COLUMN failed INTEGER NOT NULL DEFAULT 0;

-- Actions that failed for good, which people look for; the other states have indexes already.
CREATE INDEX actions_failed ON actions (tenant, seq) WHERE state = 'failed';

-- Why someone did it, if they said so.
ALTER TABLE audit ADD COLUMN reason TEXT;
