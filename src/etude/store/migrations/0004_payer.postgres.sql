-- The key that had an agent made: what its steps use counts against that key's day.
ALTER TABLE agents ADD COLUMN key_id text COLLATE "C";
