"""The nearest valid name, for messages about an unknown one."""

from collections.abc import Iterable
from difflib import get_close_matches

MAX_LISTED = 12


def nearest(word: str, known: Iterable[str], count: int = 1) -> list[str]:
    """At most `count` of `known` that `word` was probably meant to be, best first; case, '-' and '_' are alike."""
    by_form = {_form(name): name for name in known}
    exact = by_form.get(_form(word))
    if exact is not None:
        return [exact]
    return [by_form[form] for form in get_close_matches(_form(word), by_form, n=count, cutoff=0.6)]


def did_you_mean(word: str, known: Iterable[str], *, count: int = 1, otherwise: str = "") -> str:
    """`did you mean 'x' or 'y'?`, of `count` at most; where none is near, `otherwise` or the names there are."""
    names = sorted(set(known))
    near = nearest(word, names, count)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    if otherwise:
        return otherwise
    if not names:
        return "there is none to choose from"
    more = ", ..." if len(names) > MAX_LISTED else ""
    return f"known: {', '.join(names[:MAX_LISTED])}{more}"


def _form(name: str) -> str:
    return name.lower().replace("-", "_")
