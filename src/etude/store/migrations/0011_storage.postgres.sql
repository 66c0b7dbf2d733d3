-- The artifacts of each tenant, each counted once however many runs made it, and the sum of their sizes. A tenant's
-- storage quota is compared with the sum.
CREATE TABLE stored (
    tenant text COLLATE "C" NOT NULL,
    hash text COLLATE "C" NOT NULL,
    size bigint NOT NULL,
    PRIMARY KEY (tenant, hash)
);

CREATE TABLE storage (
    tenant text COLLATE "C" NOT NULL PRIMARY KEY,
    bytes bigint NOT NULL
);

INSERT INTO stored
SELECT runs.tenant, events.body->'artifact'->>'hash', (events.body->'artifact'->>'size')::bigint
FROM events JOIN runs ON runs.id = events.run_id WHERE events.type = 'artifact.created'
ON CONFLICT DO NOTHING;

INSERT INTO storage SELECT tenant, sum(size) FROM stored GROUP BY tenant;
