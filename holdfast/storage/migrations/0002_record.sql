-- The permanent record: the events of each thread, at positions without gaps, never changed.
CREATE TABLE holdfast.threads (
    id         integer     PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    thread     text        NOT NULL UNIQUE,
    created_at timestamptz NOT NULL DEFAULT now()
);

-- One event a row; 0005_blocks.sql has replaced this table.
CREATE TABLE holdfast.events (
    thread   integer NOT NULL REFERENCES holdfast.threads,
    position integer NOT NULL CHECK (position >= 0),
    at       bigint,           -- microseconds since 1970, UTC; null if the line is stored verbatim
    digest   bytea,            -- null if the line is stored verbatim
    body     bytea   NOT NULL, -- bytes, since text and jsonb refuse \u0000 and lone surrogates
    PRIMARY KEY (thread, position)
);
ALTER TABLE holdfast.events ALTER COLUMN body SET STORAGE EXTERNAL;  -- compressed already

-- Artifacts: content under its SHA-256, in parts, so that reading some of it does not load all of it.
CREATE TABLE holdfast.artifacts (
    digest     bytea       PRIMARY KEY,
    size       bigint      NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE holdfast.artifact_parts (
    digest  bytea   NOT NULL REFERENCES holdfast.artifacts ON DELETE CASCADE,
    part    integer NOT NULL,
    content bytea   NOT NULL,
    PRIMARY KEY (digest, part)
);

-- Which threads refer to an artifact: holdfast/runtime/stores/prune.py removes artifacts without references.
CREATE TABLE holdfast.artifact_threads (
    digest bytea   NOT NULL REFERENCES holdfast.artifacts,
    thread integer NOT NULL REFERENCES holdfast.threads,
    PRIMARY KEY (thread, digest)
);
CREATE INDEX artifact_threads_digest ON holdfast.artifact_threads (digest);
