-- Why a playbook was a candidate for a run.
ALTER TABLE lesson_events ADD COLUMN why text NOT NULL DEFAULT '';

-- What a model says about failures that no rule explains, by the key of the failure.
CREATE TABLE diagnoses (
    tenant text NOT NULL,
    kind text NOT NULL,
    error_key text NOT NULL,
    diagnosis text NOT NULL,
    suggestion text NOT NULL,
    model text NOT NULL,
    at timestamptz NOT NULL,
    PRIMARY KEY (tenant, kind, error_key)
);
