-- The record for SQL (holdfast/runtime/stores/event_rows.py): a row per event, with what people ask for as columns. Blocks
-- are compressed in a way that SQL cannot read. These rows are a copy that proves nothing: the blocks stay the record.
CREATE TABLE holdfast.event_rows (
    thread   integer     NOT NULL REFERENCES holdfast.threads ON DELETE CASCADE,
    position integer     NOT NULL,
    at       timestamptz,
    type     text        NOT NULL,
    step     integer     NOT NULL,  -- LLM replies so far
    agent    text,
    call     integer,               -- the number of the tool call
    tool     text,
    request  text,                  -- the id of the approval request
    status   text,                  -- of a result, a verdict, a decision, a run
    actor    text,                  -- the person who did it, by their own claim where nothing is signed
    body     jsonb       NOT NULL,  -- long texts are cut
    PRIMARY KEY (thread, position)
);
CREATE INDEX event_rows_type ON holdfast.event_rows (type, at);
CREATE INDEX event_rows_call ON holdfast.event_rows (thread, call) WHERE type = 'tool_call_requested';
CREATE INDEX event_rows_request ON holdfast.event_rows (thread, request)
    WHERE type IN ('approval_requested', 'reconcile_requested');

-- A view runs with its owner's rights: a role needs USAGE on the schema and SELECT on the view, and nothing else.
CREATE VIEW holdfast.log WITH (security_barrier = true) AS
SELECT threads.thread, position, at, type, step, agent, call, tool, request, status, actor, body
FROM holdfast.event_rows JOIN holdfast.threads ON threads.id = event_rows.thread;
