-- What LLM calls cost, one row for each call that was answered, for sums by day, agent, LLM and thread. Each call counts
-- once: a fork begins with events of another thread, and a reset archives a branch of its own.
CREATE VIEW holdfast.costs WITH (security_barrier = true) AS
WITH forks AS (
    SELECT events.thread, max(shown.position) AS position
    FROM holdfast.events CROSS JOIN LATERAL jsonb_to_recordset(events.log_rows) AS shown (position integer, type text)
    WHERE events.origins IS NOT NULL AND shown.type = 'run_forked'
    GROUP BY events.thread
)
SELECT threads.thread, shown.position, shown.at, (shown.at AT TIME ZONE 'UTC')::date AS day, shown.agent,
    shown.body ->> 'llm' AS llm,
    coalesce((shown.body -> 'usage' ->> 'prompt_tokens')::bigint, 0) AS input_tokens,
    coalesce((shown.body -> 'usage' ->> 'cached_tokens')::bigint, 0) AS cache_read_tokens,
    coalesce((shown.body -> 'usage' ->> 'cache_write_tokens')::bigint, 0) AS cache_write_tokens,
    coalesce((shown.body -> 'usage' ->> 'completion_tokens')::bigint, 0) AS output_tokens,
    (shown.body ->> 'cost')::numeric / 1000000000 AS usd -- by list prices; null if the LLM's is unknown
FROM holdfast.events JOIN holdfast.threads ON threads.id = events.thread
LEFT JOIN forks ON forks.thread = events.thread
CROSS JOIN LATERAL jsonb_to_recordset(events.log_rows) AS shown (
    position integer, at timestamptz, type text, agent text, body jsonb
)
WHERE shown.type IN ('llm_replied', 'context_compacted', 'llm_call_lost') AND shown.position > coalesce(forks.position, -1)
    AND threads.thread !~ '~reset-[0-9]+$';
