-- Semantic memory. Items that must not be found any more (superseded, forgotten) have no lexemes and no vector.
CREATE TABLE holdfast.memories (
    number        bigint      PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    id            text        NOT NULL UNIQUE,
    key           text        NOT NULL UNIQUE,  -- the effect key: a repeated call stores one item
    scope         text        NOT NULL,
    text          text,                         -- null once forgotten
    trust         text        NOT NULL,
    standing      boolean     NOT NULL,
    kind          text        NOT NULL,
    thread        text        NOT NULL,
    position      integer     NOT NULL,
    by            text        NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    expires_at    timestamptz,
    supersedes    text        NOT NULL,         -- empty for none
    superseded_by text        NOT NULL DEFAULT '',
    forgotten_at  timestamptz,
    forgotten_by  text        NOT NULL DEFAULT '',
    forgotten_why text        NOT NULL DEFAULT '',
    lexemes       tsvector,                     -- of the text, and ' scope': one index serves both
    space         integer     NOT NULL DEFAULT 0 -- the space of its vector; 0 for none yet
);
-- Without a pending list, which every search would have to read.
CREATE INDEX memories_lexemes ON holdfast.memories USING gin (lexemes) WITH (fastupdate = off)
    WHERE lexemes IS NOT NULL;
CREATE INDEX memories_newest ON holdfast.memories (scope, number DESC) WHERE lexemes IS NOT NULL;
CREATE INDEX memories_standing ON holdfast.memories (scope, number DESC) WHERE lexemes IS NOT NULL AND standing;
CREATE INDEX memories_space ON holdfast.memories (space, number) WHERE lexemes IS NOT NULL;
CREATE INDEX memories_expiry ON holdfast.memories (expires_at) WHERE expires_at IS NOT NULL;

-- Vectors of different embedding models cannot be compared: each has a space, and an index, of its own.
CREATE TABLE holdfast.memory_spaces (
    space      integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    model      text    NOT NULL,
    dimensions integer NOT NULL,
    UNIQUE (model, dimensions)
);

-- Creates the table of vectors if pgvector is installed, or can be. Returns whether the table exists.
CREATE FUNCTION holdfast.make_memory_vectors() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF to_regclass('holdfast.memory_vectors') IS NOT NULL THEN
        RETURN true;
    END IF;
    CREATE EXTENSION IF NOT EXISTS vector;
    IF (SELECT string_to_array(extversion, '.')::integer[] < '{0,8}' FROM pg_extension WHERE extname = 'vector') THEN
        RETURN false;  -- without iterative scans, a search may find too few items of the scopes
    END IF;
    EXECUTE 'CREATE TABLE holdfast.memory_vectors (
        number    bigint  PRIMARY KEY REFERENCES holdfast.memories ON DELETE CASCADE,
        space     integer NOT NULL,
        scope     text    NOT NULL,
        embedding halfvec NOT NULL
    )';
    EXECUTE 'CREATE INDEX memory_vectors_scope ON holdfast.memory_vectors (scope, space)';
    RETURN true;
EXCEPTION WHEN OTHERS THEN  -- not installed, or not allowed: search by words alone
    RETURN false;
END $$;
SELECT holdfast.make_memory_vectors();
