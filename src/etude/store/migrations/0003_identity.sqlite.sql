-- Everything belongs to one tenant; what was there before there were tenants belongs to `main`.
ALTER TABLE runs ADD COLUMN tenant TEXT NOT NULL DEFAULT 'main';

ALTER TABLE threads ADD COLUMN tenant TEXT NOT NULL DEFAULT 'main';

CREATE TABLE sources_of_tenants (
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    spec TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID;

INSERT INTO sources_of_tenants (tenant, name, spec) SELECT 'main', name, spec FROM sources;

DROP TABLE sources;

ALTER TABLE sources_of_tenants RENAME TO sources;

-- Lists are those of one tenant.
DROP INDEX runs_by_time;

DROP INDEX runs_by_status;

DROP INDEX runs_by_source;

DROP INDEX runs_by_thread;

DROP INDEX threads_by_time;

CREATE INDEX runs_by_time ON runs (tenant, created_at, id);

CREATE INDEX runs_by_status ON runs (tenant, status, created_at, id);

CREATE INDEX runs_by_source ON runs (tenant, source, created_at, id) WHERE source IS NOT NULL;

CREATE INDEX runs_by_thread ON runs (tenant, thread_id, created_at, id) WHERE thread_id IS NOT NULL;

CREATE INDEX runs_at_work ON runs (created_at, id) WHERE status = 'running';

CREATE INDEX runs_open ON runs (status) WHERE status IN ('queued', 'running', 'paused', 'waiting');

CREATE INDEX threads_by_time ON threads (tenant, updated_at, id);

-- Who may call. Of a key only the hash of its random part is kept.
CREATE TABLE keys (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    role TEXT NOT NULL,
    hash TEXT NOT NULL,
    limits TEXT NOT NULL,
    created_at TEXT NOT NULL,
    expires_at TEXT,
    revoked_at TEXT
) WITHOUT ROWID;

CREATE INDEX keys_by_tenant ON keys (tenant, id);

-- Sessions of browsers, named by the hash of their cookie; each stands for the key that opened it.
CREATE TABLE logins (
    hash TEXT PRIMARY KEY,
    key_id TEXT NOT NULL REFERENCES keys (id) ON DELETE CASCADE,
    expires_at TEXT NOT NULL
) WITHOUT ROWID;

-- What a key has used on a day (UTC).
CREATE TABLE spending (
    key_id TEXT NOT NULL,
    day TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    cost_usd REAL NOT NULL,
    seconds REAL NOT NULL,
    PRIMARY KEY (key_id, day)
) WITHOUT ROWID;

-- Who did what. Rows are never changed.
CREATE TABLE audit (
    id TEXT PRIMARY KEY,
    at TEXT NOT NULL,
    tenant TEXT NOT NULL,
    key_id TEXT,
    action TEXT NOT NULL,
    status INTEGER NOT NULL,
    request_id TEXT NOT NULL,
    address TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX audit_by_tenant ON audit (tenant, id);

-- Answers to requests that named themselves, so that the same request sent twice is done once.
CREATE TABLE replies (
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    request TEXT NOT NULL,
    created_at TEXT NOT NULL,
    status INTEGER,
    media TEXT,
    body TEXT,
    PRIMARY KEY (owner, name)
) WITHOUT ROWID;

CREATE INDEX replies_by_time ON replies (created_at);

-- What agents report of their work.
CREATE TABLE reports (
    id TEXT PRIMARY KEY,
    at TEXT NOT NULL,
    tenant TEXT NOT NULL,
    body TEXT NOT NULL
) WITHOUT ROWID;

CREATE INDEX reports_by_tenant ON reports (tenant, id);
