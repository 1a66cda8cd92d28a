"""The docstrings under a class's fields, which Python itself does not keep."""

import ast
import inspect
import textwrap
from collections.abc import Mapping
from functools import cache

from pydantic import BaseModel


def field_docstrings(cls: type[BaseModel]) -> dict[str, str]:
    """Field name -> the text under it, in the class or a base of it; less those of which there is no source to read."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if "__annotations__" in vars(base):
            found |= _in_source(base)
    return {name: text for name, text in found.items() if name in cls.model_fields}


@cache
def _in_source(cls: type) -> Mapping[str, str]:
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return {}
    statements = body.body if isinstance(body, ast.ClassDef) else []
    texts: dict[str, str] = {}
    for pair in zip(statements, statements[1:], strict=False):
        match pair:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                texts[name] = inspect.cleandoc(text)
    return texts
