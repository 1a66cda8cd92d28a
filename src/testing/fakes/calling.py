"""Scripts of fakes may be plain functions or coroutines."""

import inspect
from collections.abc import Awaitable
from typing import TypeVar, cast

T = TypeVar("T")


async def settled(value: T | Awaitable[T]) -> T:
    """`value`, awaited where it can be."""
    if inspect.isawaitable(value):
        return cast(T, await value)
    return value
