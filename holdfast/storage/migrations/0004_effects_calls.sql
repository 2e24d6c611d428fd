-- Which call an effect belongs to: a reset run finds its past effects by it, and does not repeat the same call.
ALTER TABLE holdfast.effects
    ADD COLUMN number       integer,  -- the call's number, in the branch of the thread that started it
    ADD COLUMN first_run_id text,     -- of the chain of Temporal runs that started it
    ADD COLUMN call_digest  text,     -- of tool and arguments
    ADD COLUMN call         text;     -- tool and arguments in one line, for people and LLMs
