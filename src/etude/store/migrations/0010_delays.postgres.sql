-- When the delay of an action began, if not with the action: a retry is delayed when the attempt before it has failed.
ALTER TABLE actions ADD COLUMN delayed_at double precision;
