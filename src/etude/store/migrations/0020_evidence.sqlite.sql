-- The outcome of a run that was deleted: 1 if it succeeded, 0 if it failed, -1 if it says nothing about a playbook. While
-- the run is there, it is NULL, and the events of the run say it.
ALTER TABLE lesson_events ADD COLUMN outcome INTEGER;
