-- Which call an effect was: a run that was reset finds its own effects by it, and the same call is not made twice.
ALTER TABLE holdfast.effects
    ADD COLUMN number       integer,  -- the call's, in the branch of the thread that began it
    ADD COLUMN first_run_id text,     -- of the chain of Temporal runs that began it
    ADD COLUMN call_digest  text,     -- of tool and arguments
    ADD COLUMN call         text;     -- the same in a line, for people and LLMs
