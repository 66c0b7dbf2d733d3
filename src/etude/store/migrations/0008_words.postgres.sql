-- The words of runs. They are split by `etude`, so that all stores split them alike, and need no extension.
-- A pending list would make the first search after many new runs pay for all of them.
CREATE INDEX runs_by_word ON runs USING gin (array_to_tsvector(string_to_array(search, ' '))) WITH (fastupdate = off);
