-- Agents that events wake, of whatever kind.
ALTER TABLE agents ADD COLUMN listens integer NOT NULL DEFAULT 0;
UPDATE agents SET listens = 1 WHERE kind = 'webhook';
DROP INDEX agents_listening;
CREATE INDEX agents_listening ON agents (tenant, id) WHERE listens = 1 AND status = 'active';
