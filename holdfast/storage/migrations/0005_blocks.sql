-- Events in blocks: consecutive events are compressed together (holdfast/runtime/stores/blocks.py).
-- Events recorded one per row, before the first release, are kept in a table that nothing reads.
DO $$
BEGIN
    IF EXISTS (SELECT FROM holdfast.events) THEN
        ALTER TABLE holdfast.events DROP CONSTRAINT events_thread_fkey;
        ALTER TABLE holdfast.events RENAME TO events_before_blocks;
    ELSE
        DROP TABLE holdfast.events;
    END IF;
END $$;

CREATE TABLE holdfast.events (
    thread   integer NOT NULL REFERENCES holdfast.threads,
    position integer NOT NULL CHECK (position >= 0),   -- of the first event
    stop     integer NOT NULL CHECK (stop > position), -- where the next block begins
    size     bigint  NOT NULL,                         -- bytes of the events' lines
    at       bigint,           -- of the last event: microseconds since 1970, UTC; null if its line has none
    body     bytea   NOT NULL, -- bytes, since text and jsonb refuse \u0000 and lone surrogates
    PRIMARY KEY (thread, position)
);
ALTER TABLE holdfast.events ALTER COLUMN body SET STORAGE EXTERNAL;  -- compressed already
