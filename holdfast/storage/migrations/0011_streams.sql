-- Replies that are being written, for readers: the record alone counts, and a crash may empty this table. Its writers
-- delete what is obsolete: when the thread's next reply begins, and after an hour.
CREATE UNLOGGED TABLE holdfast.streams (
    thread   text        NOT NULL,
    position bigint      NOT NULL, -- of the reply to come, when the LLM was called
    attempt  integer     NOT NULL,
    chunk    integer     NOT NULL,
    kind     text        NOT NULL,
    text     bytea       NOT NULL CHECK (octet_length(text) <= 65536), -- UTF-8; not text, which cannot hold U+0000
    call     integer,
    tool     bytea       NOT NULL CHECK (octet_length(tool) <= 400),
    at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (thread, position, attempt, chunk)
);
CREATE INDEX streams_by_time ON holdfast.streams (at);
