"""What the hooks for other tools share: a verified conversion, or an error that says why not."""

from typing import Any

import kvlift

from .testing import EQUAL, failure_text


def verified(model: "kvlift.ModelLike", *, accept: str = "proved",
             **options: Any) -> "kvlift.Conversion":
    """Converts all caches of a model and verifies the result.

    `accept` is "proved", or "tested" where it is enough that all plans pass. The other options are
    those of `kvlift.convert`. Raises kvlift.Error if a cache is not converted, and if the result is
    not shown to be equal.
    """
    if accept not in ("proved", "tested"):
        raise ValueError(f'accept is "proved" or "tested", not {accept!r}')
    result = kvlift.convert(model, accept=accept, **options)
    if not result:
        refused = [f"{cache['id']}: {cache['reason']['code']} {cache['reason']['text']}"
                   for cache in result.caches if cache.get("reason")]
        raise kvlift.Error(f"{result.status}: "
                           + ("; ".join(refused) or "no cache was converted"))
    verdict = result.verify()
    if verdict.kind not in EQUAL and not (accept == "tested"
                                          and verdict.kind == "equal as tested"):
        raise kvlift.Error(failure_text(model, result.model, verdict))
    return result
