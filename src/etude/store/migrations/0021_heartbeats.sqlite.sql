-- When each process last wrote that it works, in seconds since 1970 by the clock of the store, and how many seconds its
-- own clock is ahead of that clock. Processes of earlier versions write neither.
ALTER TABLE processes ADD COLUMN seen_at REAL;

ALTER TABLE processes ADD COLUMN clock_skew_s REAL;

-- What all processes together did with the queue, such as claims and retries.
CREATE TABLE queue_totals (
    name TEXT PRIMARY KEY,
    total INTEGER NOT NULL
);
