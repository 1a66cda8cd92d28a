"""Tasks that are cancelled while they work."""

import asyncio
from typing import Any


async def cancelled(task: asyncio.Task[Any], limit_s: float = 10) -> bool:
    """Cancel the task: whether it ends as cancelled within the limit."""
    task.cancel()
    await asyncio.wait({task}, timeout=limit_s)
    return task.cancelled()
