-- Records in the store count toward the storage quota, as files do. Each run has the bytes of its events and of its own
-- row; 128 bytes more for each record stand for ids, times and indexes.
ALTER TABLE runs ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;

UPDATE runs SET bytes = 128 + length(CAST(text AS BLOB)) + length(CAST(search AS BLOB))
    + (SELECT coalesce(sum(length(CAST(body AS BLOB)) + 128), 0) FROM events WHERE events.run_id = runs.id);

-- The bytes of all records of a tenant. Processes add to it now and then, and a recount corrects it.
ALTER TABLE storage ADD COLUMN record_bytes INTEGER NOT NULL DEFAULT 0;

INSERT INTO storage (tenant, bytes, record_bytes) SELECT tenant, 0, sum(bytes) FROM runs WHERE true GROUP BY tenant
    ON CONFLICT (tenant) DO UPDATE SET record_bytes = excluded.record_bytes;
