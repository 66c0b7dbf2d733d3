-- Records in the store count toward the storage quota, as files do. Each run has the bytes of its events and of its own
-- row; 128 bytes more for each record stand for ids, times and indexes.
ALTER TABLE runs ADD COLUMN bytes bigint NOT NULL DEFAULT 0;

UPDATE runs SET bytes = 128 + octet_length(text) + octet_length(search)
    + (SELECT coalesce(sum(octet_length(CAST(body AS text)) + 128), 0) FROM events WHERE events.run_id = runs.id);

-- The bytes of all records of a tenant. Processes add to it now and then, and a recount corrects it.
ALTER TABLE storage ADD COLUMN record_bytes bigint NOT NULL DEFAULT 0;

INSERT INTO storage (tenant, bytes, record_bytes) SELECT tenant, 0, sum(bytes) FROM runs GROUP BY tenant
    ON CONFLICT (tenant) DO UPDATE SET record_bytes = excluded.record_bytes;
