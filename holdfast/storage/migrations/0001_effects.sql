-- The effect ledger: one row per effect, written before it happens and completed after.
CREATE TABLE holdfast.effects (
    key         text        NOT NULL,
    epoch       integer     NOT NULL,  -- incremented when a person decides that the effect did not happen
    thread      text        NOT NULL,
    tool        text        NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    outcome     text,                  -- ToolOutcome as JSON; text, since jsonb refuses \u0000
    PRIMARY KEY (key, epoch),
    CHECK ((finished_at IS NULL) = (outcome IS NULL))
);
CREATE INDEX effects_thread ON holdfast.effects (thread);
