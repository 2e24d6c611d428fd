-- Feeds: programs that read the record as it grows, such as the exporter of traces (holdfast/storage/feeds.py).
-- A block gets a number when it is written. Those that an older release wrote have none, and no feed reads them until
-- their thread grows.
CREATE SEQUENCE holdfast.block_numbers;
GRANT USAGE ON SEQUENCE holdfast.block_numbers TO PUBLIC; -- as an identity column has it, which would rewrite the table
ALTER TABLE holdfast.events ADD COLUMN number bigint;
ALTER TABLE holdfast.events ALTER COLUMN number SET DEFAULT nextval('holdfast.block_numbers');
CREATE INDEX events_by_number ON holdfast.events (number) WHERE number IS NOT NULL;

CREATE TABLE holdfast.feeds (
    name   text   PRIMARY KEY,
    number bigint NOT NULL -- the feed has seen every block up to this one
);
CREATE TABLE holdfast.feed_threads (
    feed     text    NOT NULL REFERENCES holdfast.feeds,
    thread   integer NOT NULL REFERENCES holdfast.threads ON DELETE CASCADE,
    position integer NOT NULL, -- the first event that the feed has not delivered
    head     text    NOT NULL, -- digest of the event before: a reset of the run replaces events
    carried  jsonb,            -- what the feed needs from the events before
    PRIMARY KEY (feed, thread)
);
