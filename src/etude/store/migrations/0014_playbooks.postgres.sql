-- Runs for which a version of a playbook was eligible, and whether the coin showed it.
CREATE TABLE lesson_events (
    tenant text NOT NULL,
    name text NOT NULL,
    version text NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    family text NOT NULL,
    q double precision NOT NULL,
    shown bigint NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (tenant, name, version, run_id)
);

-- What became of playbooks: added, edited, pinned, retired, quarantined; with the text of each version.
CREATE TABLE lesson_changes (
    id text COLLATE "C" PRIMARY KEY,
    tenant text NOT NULL,
    name text NOT NULL,
    version text NOT NULL,
    change text NOT NULL,
    reason text NOT NULL,
    at timestamptz NOT NULL,
    text text NOT NULL
);

CREATE INDEX lesson_changes_by_name ON lesson_changes (tenant, name, id);
