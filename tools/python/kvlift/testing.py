"""Assertions for tests of any framework."""

import os
from typing import Any, Dict, List

import kvlift

EQUAL = ("equal", "equal within quantisation")


def _name(model: "kvlift.ModelLike") -> str:
    """Returns what a model is called in a failure."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return f"a model of {len(model)} bytes"
    if isinstance(model, kvlift.Model):
        return getattr(model, "path", "") or "a model in memory"
    return os.fspath(model)


def _number(value: Any) -> str:
    return "not finite" if value is None else f"{value:.9g}"


def _counterexample_lines(found: Dict[str, Any]) -> List[str]:
    lines = [f"plan:    {found['plan']}, step {found['step']}"]
    if found.get("element"):
        where = ", ".join(str(i) for i in found["element"])
        lines.append(f"element: {found['output']}[{where}] is {_number(found['before'])} in the "
                     f"source and {_number(found['after'])} in the other model")
    else:
        lines.append(f"output:  {found['output']}")
    smallest = found.get("smallest")
    if smallest:
        lines.append(f"also in: a step of {smallest['new_tokens']} new tokens behind "
                     f"{smallest['past']} past ones: {smallest['text']}")
    nodes = found.get("nodes")
    if nodes and (nodes.get("before") or nodes.get("after")):
        lines.append(f"nodes:   {nodes.get('before') or '-'} in the source, "
                     f"{nodes.get('after') or '-'} in the other model")
    return lines


def failure_text(before: "kvlift.ModelLike", after: "kvlift.ModelLike",
                 verdict: "kvlift.Verdict") -> str:
    """Returns why two models are not taken for equal, for people."""
    document = verdict.document
    head = "models differ" if verdict.kind == "different" else f"models are {verdict.kind}"
    lines = [f"{head}: {verdict.reason}" if verdict.reason else head,
             f"source:  {_name(before)}", f"other:   {_name(after)}"]
    if document.get("counterexample"):
        lines += _counterexample_lines(document["counterexample"])
    passed = [p["name"] for p in document["plans"] if p["status"] in ("bitwise", "within bound")]
    failed = [p["name"] for p in document["plans"] if p["status"] in ("different", "failed")]
    lines.append(f"plans:   {len(passed)} passed"
                 + f", not: {', '.join(failed)}" * bool(failed))
    if verdict.kind == "equal as tested":
        lines.append('accept="tested" takes this for equal')
    if verdict.reason.startswith("KV"):
        lines.append(f"`kvlift explain {verdict.reason[:5]}` says more")
    return "\n".join(lines)


def assert_equal_models(before: "kvlift.ModelLike", after: "kvlift.ModelLike", *,
                        accept: str = "proved", **options: Any) -> "kvlift.Verdict":
    """Raises AssertionError unless `after` computes the same as `before`; returns the verdict.

    `accept` is "proved", or "tested" where it is enough that all plans pass. The other options are
    those of `kvlift.verify`. A verdict that is inconclusive is a failure as well.
    """
    __tracebackhide__ = True
    if accept not in ("proved", "tested"):
        raise ValueError(f'accept is "proved" or "tested", not {accept!r}')
    verdict = kvlift.verify(before, after, **options)
    if verdict.kind in EQUAL or (accept == "tested" and verdict.kind == "equal as tested"):
        return verdict
    raise AssertionError(failure_text(before, after, verdict))
