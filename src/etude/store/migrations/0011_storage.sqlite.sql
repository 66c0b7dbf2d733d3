-- The artifacts of each tenant, each counted once however many runs made it, and the sum of their sizes. A tenant's
-- storage quota is compared with the sum.
CREATE TABLE stored (
    tenant TEXT NOT NULL,
    hash TEXT NOT NULL,
    size INTEGER NOT NULL,
    PRIMARY KEY (tenant, hash)
) WITHOUT ROWID;

CREATE TABLE storage (
    tenant TEXT NOT NULL PRIMARY KEY,
    bytes INTEGER NOT NULL
) WITHOUT ROWID;

INSERT OR IGNORE INTO stored
SELECT runs.tenant, json_extract(events.body, '$.artifact.hash'), json_extract(events.body, '$.artifact.size')
FROM events JOIN runs ON runs.id = events.run_id WHERE events.type = 'artifact.created';

INSERT INTO storage SELECT tenant, sum(size) FROM stored GROUP BY tenant;
