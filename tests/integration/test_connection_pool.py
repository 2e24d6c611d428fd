"""A pool of connections to PostgreSQL lends only connections that work."""

from holdfast.config.stack_file import Stack
from tests.support.keeping import new_pool


async def test_a_connection_that_comes_back_in_pipeline_mode_is_replaced(stack: Stack) -> None:
    """However a borrower left pipeline mode on, such as by being cancelled, the next one gets a connection without."""
    async with new_pool(stack.database_url) as (_, pool):
        for _ in range(5):
            async with pool.connection() as connection:
                assert not connection.pgconn.pipeline_status
                await connection.execute("SELECT 1")
                connection.pgconn.enter_pipeline_mode()
