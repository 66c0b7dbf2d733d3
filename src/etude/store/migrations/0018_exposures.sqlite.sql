-- Why a playbook was a candidate for a run.
ALTER TABLE lesson_events ADD COLUMN why TEXT NOT NULL DEFAULT '';

-- What a model says about failures that no rule explains, by the key of the failure.
CREATE TABLE diagnoses (
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    error_key TEXT NOT NULL,
    diagnosis TEXT NOT NULL,
    suggestion TEXT NOT NULL,
    model TEXT NOT NULL,
    at TEXT NOT NULL,
    PRIMARY KEY (tenant, kind, error_key)
) WITHOUT ROWID;
