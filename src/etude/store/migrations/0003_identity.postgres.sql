-- Everything belongs to one tenant; what was there before there were tenants belongs to `main`.
ALTER TABLE runs ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT 'main';

ALTER TABLE threads ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT 'main';

ALTER TABLE sources ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT 'main';

ALTER TABLE sources DROP CONSTRAINT sources_pkey;

ALTER TABLE sources ADD PRIMARY KEY (tenant, name);

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
    id text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    name text NOT NULL,
    role text NOT NULL,
    hash text NOT NULL,
    limits json NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz
);

CREATE INDEX keys_by_tenant ON keys (tenant, id);

-- Sessions of browsers, named by the hash of their cookie; each stands for the key that opened it.
CREATE TABLE logins (
    hash text COLLATE "C" PRIMARY KEY,
    key_id text COLLATE "C" NOT NULL REFERENCES keys (id) ON DELETE CASCADE,
    expires_at timestamptz NOT NULL
);

-- What a key has used on a day (UTC).
CREATE TABLE spending (
    key_id text COLLATE "C" NOT NULL,
    day text COLLATE "C" NOT NULL,
    tokens bigint NOT NULL,
    cost_usd double precision NOT NULL,
    seconds double precision NOT NULL,
    PRIMARY KEY (key_id, day)
);

-- Who did what. Rows are never changed.
CREATE TABLE audit (
    id text COLLATE "C" PRIMARY KEY,
    at timestamptz NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    key_id text COLLATE "C",
    action text NOT NULL,
    status bigint NOT NULL,
    request_id text NOT NULL,
    address text NOT NULL
);

CREATE INDEX audit_by_tenant ON audit (tenant, id);

-- Answers to requests that named themselves, so that the same request sent twice is done once.
CREATE TABLE replies (
    owner text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    request text NOT NULL,
    created_at timestamptz NOT NULL,
    status bigint,
    media text,
    body text,
    PRIMARY KEY (owner, name)
);

CREATE INDEX replies_by_time ON replies (created_at);

-- What agents report of their work.
CREATE TABLE reports (
    id text COLLATE "C" PRIMARY KEY,
    at timestamptz NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    body json NOT NULL
);

CREATE INDEX reports_by_tenant ON reports (tenant, id);
