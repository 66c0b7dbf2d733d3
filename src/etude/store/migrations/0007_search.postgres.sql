-- `search` holds the words of the text from now on; those of runs that are there already are written by `etude` itself.
-- Every filter alone, and every two together: what is rare among many is found without a look at all of them.
CREATE INDEX runs_by_kind ON runs (tenant, kind, created_at, id);

CREATE INDEX runs_by_status_and_kind ON runs (tenant, status, kind, created_at, id);

CREATE INDEX runs_by_source_and_status ON runs (tenant, source, status, created_at, id) WHERE source IS NOT NULL;

CREATE INDEX runs_by_source_and_kind ON runs (tenant, source, kind, created_at, id) WHERE source IS NOT NULL;
