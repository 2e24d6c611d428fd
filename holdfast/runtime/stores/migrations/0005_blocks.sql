-- Events in blocks: what follows each other is compressed together (holdfast/runtime/stores/blocks.py).
-- What a version before the first release has recorded, one event a row, is put away and not read.
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
    at       bigint,           -- of the last event: microseconds since 1970, UTC; null where its line gives none
    body     bytea   NOT NULL, -- bytes, since text and jsonb refuse \u0000 and half surrogate pairs
    PRIMARY KEY (thread, position)
);
ALTER TABLE holdfast.events ALTER COLUMN body SET STORAGE EXTERNAL;  -- compressed already
