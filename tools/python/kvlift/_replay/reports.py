"""What a replay found, as text, JSON and JUnit."""

import math
import re
import xml.etree.ElementTree as xml
from typing import Any, Dict, List, Optional

from . import timing
from .errors import DIFFERENT, EQUAL, INCONCLUSIVE
from .record import Record
from .runtime import Runtime
from .session import DIFFERENT as PLAN_DIFFERENT
from .session import REFUSED, Found, Outcome

CODES = {"equal": EQUAL, "different": DIFFERENT, "refused": INCONCLUSIVE,
         "inconclusive": INCONCLUSIVE}


def printable(text: str) -> str:
    """Returns the text with control characters escaped: names in a model may hold any."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _finite(number: float) -> Optional[float]:
    return number if math.isfinite(number) else None


def _times(times: Optional[timing.Times]) -> Optional[Dict[str, float]]:
    if times is None:
        return None
    return {"min": round(times.min_us, 2), "median": round(times.median_us, 2)}


def _found(found: Optional[Found]) -> Optional[Dict[str, Any]]:
    if found is None:
        return None
    document = found._asdict()
    for key in ("got", "want", "bound"):
        document[key] = _finite(document[key])
    if found.wrong_node is not None:
        document["wrong_node"] = {**found.wrong_node._asdict(),
                                  "got": _finite(found.wrong_node.got),
                                  "reference": _finite(found.wrong_node.reference)}
    return document


def document(record: Record, runtime: Runtime, outcome: Outcome, lengths: List[timing.Length],
             in_place: Optional[timing.InPlace]) -> Dict[str, Any]:
    """Returns the document of --json (docs/schema/replay.schema.json)."""
    measured = None
    if in_place is not None:
        measured = {"bytes": in_place.bytes, "one_buffer_us": _times(in_place.one_buffer),
                    "two_buffers_us": _times(in_place.two_buffers),
                    "copy_us": _times(in_place.copy), "copied": in_place.copied}
    return {
        "schema": "kvlift/replay/1",
        "record": record.folder,
        "runtime": {"onnxruntime": runtime.ort.__version__, "provider": runtime.name,
                    "device": runtime.device_id, "options": dict(runtime.settings.options)},
        "verdict": outcome.verdict,
        "reason": outcome.reason or None,
        "plans": [{**p._asdict(), "ratio": _finite(p.ratio)} for p in outcome.plans],
        "outputs": [{"name": name, **{k: _finite(v) if isinstance(v, float) else v
                                      for k, v in worst.items()}}
                    for name, worst in outcome.outputs.items()],
        "found": _found(outcome.found),
        "caches": [{"id": i, "same_address": same} for i, same in outcome.same_address.items()],
        "in_place": measured,
        "times": [{"tokens": t.tokens, "capacity": t.capacity, "before_us": _times(t.before),
                   "after_us": _times(t.after)} for t in lengths],
        "assumptions": record.assumptions,
    }


def _table(head: List[str], rows: List[List[str]]) -> List[str]:
    """Returns lines with columns; those of numbers, by the head's leading space, end together."""
    all_rows = [[h.strip() for h in head], *rows]
    widths = [max(len(row[k]) for row in all_rows) for k in range(len(head))]
    right = [h.startswith(" ") for h in head]
    return ["  ".join(cell.rjust(w) if r else cell.ljust(w)
                      for cell, w, r in zip(row, widths, right)).rstrip() for row in all_rows]


def _found_lines(found: Found) -> List[str]:
    lines = []
    if found.plan == "":
        lines.append(f"onnxruntime does not load the converted model: {found.text}")
        if found.node:
            lines.append(f"node: {found.node}")
        return lines
    if found.output == "":
        lines.append(f"{found.plan}, step {found.step}: onnxruntime refuses the step: {found.text}")
        if found.node:
            lines.append(f"node: {found.node}")
    else:
        where = f"{found.plan}, step {found.step}"
        lines.append(f"{where}: {found.output}{found.element or ''}: {found.text}")
        lines.append(f"computed by node {found.node} ({found.operator})")
    lines.append(f"the same plan with two buffers for each cache: {found.two_buffers}")
    lines.append(f"the same plan without optimisations of the graph: {found.not_optimized}")
    lines.append(f"the source in this runtime: {found.source}")
    if found.wrong_node is not None:
        w = found.wrong_node
        lines.append(f"first node that is computed wrongly: {w.node} ({w.operator}): "
                     f"{w.value}{w.element} is {w.got:.9g}, by ONNX's reference {w.reference:.9g}")
    elif found.no_wrong_node:
        lines.append(f"no node is named: {found.no_wrong_node}")
    return lines


def text(record: Record, runtime: Runtime, outcome: Outcome, lengths: List[timing.Length],
         in_place: Optional[timing.InPlace]) -> str:
    lines = [f"onnxruntime {runtime.ort.__version__}, {runtime.name}: {record.after.path}"]
    if outcome.plans:
        rows = [[p.name, p.status, str(p.steps), f"{p.ratio:.3f}" if p.ratio else "", p.note]
                for p in outcome.plans]
        lines += _table(["plan", "result", " steps", " of its bound", "note"], rows)
    if outcome.found is not None:
        lines += ["", *_found_lines(outcome.found)]
    if outcome.same_address:
        same = sum(outcome.same_address.values())
        lines += ["", f"{same} of {len(outcome.same_address)} caches came back in the buffer that "
                      "was bound as past and present"]
    if in_place is not None:
        word = {"no": "not copied", "yes": "copied", "unclear": "unclear whether copied"}
        copy = "" if in_place.copy is None else (f", a copy of as many bytes "
                                                 f"{in_place.copy.min_us:.0f} us")
        lines.append(f"caches of {in_place.bytes / 1e6:.1f} MB: {word[in_place.copied]} (a step "
                     f"takes {in_place.one_buffer.min_us:.0f} us with one buffer, "
                     f"{in_place.two_buffers.min_us:.0f} us with two{copy})")
    if lengths:
        rows = [[str(t.tokens), str(t.capacity),
                 f"{t.before.median_us:.0f}" if t.before else "-", f"{t.after.median_us:.0f}",
                 f"{t.after.median_us / t.before.median_us:.2f}" if t.before else "-"]
                for t in lengths]
        lines += ["", *_table([" past tokens", " capacity", " source us", " converted us",
                               " ratio"], rows)]
    if record.assumptions:
        lines += ["", f"the record takes {len(record.assumptions)} assumptions for granted "
                      "(record.json)"]
    lines.append(f"verdict: {outcome.verdict}" + f" ({outcome.reason})" * bool(outcome.reason))
    return "\n".join(printable(line) for line in lines) + "\n"


def _clean(words: str) -> str:
    """Returns a text that XML can hold."""
    return re.sub(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "?", words)


def junit(record: Record, runtime: Runtime, outcome: Outcome) -> str:
    """Returns one suite with a case for each plan, and one for the verdict."""
    cases: List[Any] = []
    for plan in outcome.plans:
        cases.append((plan.name, plan.status, plan.note))
    status = {"equal": "passed", "different": PLAN_DIFFERENT}.get(outcome.verdict, REFUSED)
    detail = outcome.reason or (outcome.found.text if outcome.found else outcome.verdict)
    cases.append(("verdict", status, detail))
    counts = {"tests": str(len(cases)),
              "failures": str(sum(c[1] == PLAN_DIFFERENT for c in cases)),
              "errors": str(sum(c[1] == REFUSED for c in cases)), "skipped": "0"}
    root = xml.Element("testsuites", {"name": "kvlift", **counts})
    suite = xml.SubElement(root, "testsuite",
                           {"name": _clean(f"replay: {runtime.name}"), **counts})
    for name, result, note in cases:
        case = xml.SubElement(suite, "testcase", {"name": _clean(name),
                                                  "classname": "kvlift.replay"})
        if result in (PLAN_DIFFERENT, REFUSED):
            tag = "failure" if result == PLAN_DIFFERENT else "error"
            lines = _found_lines(outcome.found) if outcome.found else [note]
            problem = xml.SubElement(case, tag, {"type": result, "message": _clean(note)})
            problem.text = _clean("\n".join(lines))
    xml.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + xml.tostring(root, "unicode") + "\n"
