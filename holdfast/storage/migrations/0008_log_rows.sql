-- The record for SQL, in the rows of the blocks (holdfast/runtime/stores/log_rows.py). PostgreSQL compresses what the
-- view shows of a block's events together: a fifteenth of a row per event and its index entries.
DROP VIEW holdfast.log;
DROP TABLE holdfast.event_rows;

ALTER TABLE holdfast.events
    ADD COLUMN log_rows jsonb,  -- what the view shows of each event; null where an older release has stored the block
    ADD COLUMN carried  jsonb,  -- what the rows of the next block take from these events
    ADD COLUMN origins  text[]; -- the threads that a fork among the events comes from; null for none
CREATE INDEX events_origins ON holdfast.events USING gin (origins) WHERE origins IS NOT NULL;

-- A view runs with its owner's rights: a role needs USAGE on the schema and SELECT on the view, and nothing else.
CREATE VIEW holdfast.log WITH (security_barrier = true) AS
SELECT threads.thread, shown.position, shown.at, shown.type, shown.step, shown.agent, shown.call, shown.tool,
    shown.request, shown.status, shown.actor, shown.body
FROM holdfast.events JOIN holdfast.threads ON threads.id = events.thread
CROSS JOIN LATERAL jsonb_to_recordset(events.log_rows) AS shown (
    position integer, at timestamptz, type text, step integer, agent text, call integer, tool text, request text,
    status text, actor text, body jsonb
);
