"""Replays the plans of a record, and finds out what a difference depends on."""

import fnmatch
import math
from typing import Any, Dict, List, NamedTuple, Optional

from . import judge, locate
from .errors import Refused
from .record import Plan, Record
from .runtime import Converted, Runtime, Source

BITWISE, WITHIN, DIFFERENT, REFUSED = "bitwise", "within bound", "different", "refused"


class PlanResult(NamedTuple):
    name: str
    status: str
    steps: int          # that were run
    note: str           # what the plan shows, or what is wrong
    ratio: float        # the largest distance in terms of its bound


class Found(NamedTuple):
    """The first step that differs or is refused, and what that depends on."""

    plan: str
    step: int
    output: str                  # empty: the step is refused
    element: List[int]
    got: float
    want: float
    bound: float
    text: str
    node: str                    # that computes the output, or that the runtime names
    operator: str
    two_buffers: str             # status of the plan with two buffers for each cache
    not_optimized: str           # status of the plan without optimisations of the graph
    source: str                  # of the source's steps: "agrees", "differs" or "refused: ..."
    wrong_node: Optional[locate.WrongNode]
    no_wrong_node: str           # why `wrong_node` is None; else empty


class Outcome:
    """What a replay found."""

    def __init__(self) -> None:
        self.plans: List[PlanResult] = []
        self.outputs: Dict[str, Dict[str, Any]] = {}  # the worst comparison of each output
        self.same_address: Dict[str, bool] = {}       # by id of a cache
        self.found: Optional[Found] = None
        self.reason = ""
        self.sure = False  # a difference depends on no decision that rounding may turn

    @property
    def verdict(self) -> str:
        statuses = {p.status for p in self.plans}
        if DIFFERENT in statuses:
            return "different" if self.sure else "inconclusive"
        if REFUSED in statuses or (self.found is not None and not self.plans):
            return "refused"
        return "equal" if statuses else "inconclusive"


class _Step(NamedTuple):
    """Where a plan ended, if it did not pass."""

    number: int
    difference: Optional[judge.Difference]
    refused: Optional[Refused]
    feeds: Dict[str, Any]
    types: Dict[str, str]


class Replay:
    """The plans of a record in one runtime."""

    def __init__(self, runtime: Runtime, record: Record) -> None:
        self.runtime, self.record = runtime, record
        self.outcome = Outcome()
        self.after: Any = None

    def run(self, patterns: List[str]) -> Outcome:
        plans = [p for p in self.record.plans
                 if not patterns or any(fnmatch.fnmatch(p.name, q) for q in patterns)]
        try:
            self.after = self.runtime.session(self.record.after.path)
        except Refused as error:
            self.outcome.reason = f"onnxruntime does not load the converted model: {error}"
            self.outcome.found = Found("", 0, "", [], 0, 0, 0, str(error), error.node,
                                       self._operator(error.node), "", "", "", None, "")
            return self.outcome
        self.record.check_names({i.name for i in self.after.get_inputs()},
                                {o.name for o in self.after.get_outputs()})
        for plan in plans:
            self._plan(plan)
        if not plans:
            self.outcome.reason = "no plan was replayed"
        return self.outcome

    def _plan(self, plan: Plan) -> None:
        ratio, ended = self._drive(plan, self.after, True, self.outcome)
        if ended is None:
            status = BITWISE if ratio == 0 else WITHIN
            self.outcome.plans.append(PlanResult(plan.name, status, len(plan.steps), plan.shows,
                                                 ratio))
            return
        status = REFUSED if ended.refused else DIFFERENT
        text = str(ended.refused) if ended.refused else ended.difference.text
        what = "" if ended.refused else f"{ended.difference.output}: "
        self.outcome.plans.append(PlanResult(plan.name, status, ended.number + 1,
                                             f"step {ended.number}: {what}{text}", ratio))
        sure = not ended.refused and not self._may_be_a_turn(ended.difference)
        known = self.outcome.found
        # A refused step says less than a difference, and a doubtful difference less than another.
        if known is None or (sure and not self.outcome.sure) or (known.output == ""
                                                                 and not ended.refused):
            self.outcome.found = self._explain(plan, ended)
        self.outcome.sure = self.outcome.sure or sure
        if self.outcome.sure:
            self.outcome.reason = ""
        elif not ended.refused:
            self.outcome.reason = (f"{ended.difference.output} depends on a decision that rounding "
                                   "may turn")

    def _may_turn(self, output: str) -> bool:
        """Whether the output depends on a decision (which expert, say) that rounding may turn."""
        return self.record.decisions > 0 or output in self.record.doubtful

    def _may_be_a_turn(self, difference: judge.Difference) -> bool:
        """Whether such a decision explains a difference. None makes numbers infinite or NaN, gives
        an output another shape, or writes into other slots."""
        is_number = difference.element is not None and math.isfinite(difference.got)
        return is_number and self._may_turn(difference.output)

    def _drive(self, plan: Plan, session: Any, in_place: bool, outcome: Optional[Outcome]):
        """Runs a plan. Returns its largest ratio, and where it ended if it did not pass."""
        model = Converted(self.runtime, session, self.record.caches, in_place)
        ids = {c.output: c.id for c in self.record.caches}
        largest = 0.0
        for number, step in enumerate(plan.steps):
            arrays = self.record.arrays(step)
            types = {f.name: f.type for f in step.after}
            types.update({c.input: c.type for c in self.record.caches})
            try:
                result = model.step(step, arrays)
            except Refused as error:
                return largest, _Step(number, None, error, {}, types)
            first = None
            for name, worst, difference in judge.judge(self.record, step, arrays, result):
                largest = max(largest, worst.ratio)
                if outcome is not None:
                    known = outcome.outputs.setdefault(name, {"max_abs": 0.0, "bound": 0.0,
                                                              "ratio": 0.0, "where": ""})
                    if worst.ratio > known["ratio"]:
                        known.update(ratio=worst.ratio, bound=worst.bound,
                                     where=f"{plan.name}, step {number}")
                    known["max_abs"] = max(known["max_abs"], worst.max_abs)
                if difference is None:
                    continue
                if first is None or (self._may_be_a_turn(first)
                                     and not self._may_be_a_turn(difference)):
                    first = difference
            if outcome is not None:
                for output, same in result.same_address.items():
                    known = outcome.same_address.get(ids[output], True)
                    outcome.same_address[ids[output]] = known and same
            if first is not None:
                return largest, _Step(number, first, None, result.feeds, types)
        return largest, None

    def _operator(self, node: str) -> str:
        for output in self.record.after.outputs:
            if output.node == node:
                return output.operator
        return ""

    def _again(self, plan: Plan, session: Any, in_place: bool) -> str:
        ratio, ended = self._drive(plan, session, in_place, None)
        if ended is None:
            return BITWISE if ratio == 0 else WITHIN
        return REFUSED if ended.refused else DIFFERENT

    def _source(self, plan: Plan) -> str:
        """Returns what the runtime makes of the source in the same plan."""
        try:
            source = Source(self.runtime, self.runtime.session(self.record.before.path),
                            self.record)
            for step in plan.steps:
                arrays = self.record.arrays(step)
                runs = [source.run(run, {**arrays}) for run in step.before]
                if not judge.source_agrees(self.record, step, arrays, runs):
                    return "differs"
        except Refused as error:
            return f"refused: {error}"
        return "agrees"

    def _explain(self, plan: Plan, ended: _Step) -> Found:
        try:
            plain = self._again(plan, self.runtime.session(self.record.after.path, False), True)
        except Refused:
            plain = REFUSED
        two = self._again(plan, self.after, False)
        wrong, why = None, ""
        if ended.refused:
            node, operator = ended.refused.node, self._operator(ended.refused.node)
            return Found(plan.name, ended.number, "", [], 0, 0, 0, str(ended.refused), node,
                         operator, two, plain, self._source(plan), None, "")
        difference = ended.difference
        made_by = next((o for o in self.record.after.outputs if o.name == difference.output), None)
        wrong, why = locate.wrong_node(self.runtime, self.record.after.path, ended.feeds,
                                       ended.types)
        return Found(plan.name, ended.number, difference.output, list(difference.element or ()),
                     difference.got, difference.want, difference.bound, difference.text,
                     made_by.node if made_by else "", made_by.operator if made_by else "", two,
                     plain, self._source(plan), wrong, why)
