-- Forgotten threads: their content was removed on request (holdfast/runtime/stores/forget.py). What remains of each event
-- is its position, type, time and digest.
ALTER TABLE holdfast.threads ADD COLUMN forgotten_at timestamptz; -- null for a thread that has its content

CREATE TABLE holdfast.tombstones (
    thread       integer PRIMARY KEY REFERENCES holdfast.threads,
    forgotten_by text    NOT NULL,
    reason       text    NOT NULL,
    events       integer NOT NULL,
    head         text    NOT NULL, -- digest of the last event
    remains      bytea   NOT NULL, -- a line of JSON for each event
    digest       text    NOT NULL  -- of all this (holdfast/log/tombstones.py)
);

-- Where scheduled pruning is (holdfast/runtime/keeping/sweep.py): one row.
CREATE TABLE holdfast.prune_sweeps (
    one      boolean     PRIMARY KEY DEFAULT true CHECK (one),
    began_at timestamptz NOT NULL,
    ended_at timestamptz,          -- null while it is under way
    last_id  integer     NOT NULL  -- number of the last thread that it looked at
);
