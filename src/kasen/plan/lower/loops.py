"""Which steps of a loop the loop machine runs itself, and which it has to call: EXPLAIN says so."""

from __future__ import annotations

from collections.abc import Sequence

from kasen.cql import bound
from kasen.cql.bound import SetKind, StreamKind
from kasen.engine.join.hash.hash_join import HashJoin
from kasen.engine.loop.kernels import table as loop_table
from kasen.engine.loop.steps import CalledStep, LoopStep, ProgramStep
from kasen.engine.operator import Operator
from kasen.engine.text.dictionary import Dictionary
from kasen.plan import logical
from kasen.plan import physical_nodes as nodes
from kasen.plan.logical import Node
from kasen.plan.lower.expr.row_program import NoProgramError, program_of_condition, program_of_items


def part_of(node: Node, operator: Operator, inputs: Sequence[int], dictionary: Dictionary) -> LoopStep:
    """The machine's view of an operator; `inputs` are the machine's steps that it reads."""
    if why_called(node, dictionary) is not None:
        return CalledStep(operator, inputs)
    match node, operator:
        case logical.Filter(condition=condition), _:
            return ProgramStep(loop_table.FILTER, program_of_condition(condition, dictionary))
        case logical.Project(items=items), _:
            return ProgramStep(loop_table.PROJECT, program_of_items(items, dictionary))
        case logical.InnerJoin(residual=residual), HashJoin() if residual is not None:
            operator.program = program_of_condition(residual, dictionary)
    assert isinstance(operator, LoopStep), f"the machine knows no {type(node).__name__}"
    return operator


def why_called(node: Node, dictionary: Dictionary | None = None) -> str | None:
    """What in the step the machine cannot do, or None if it runs it."""
    dictionary = dictionary or Dictionary()
    try:
        match node:
            case logical.Filter(condition=condition):
                program_of_condition(condition, dictionary)
            case logical.Project(items=items):
                program_of_items(items, dictionary)
            case logical.InnerJoin(residual=residual) if residual is not None:
                program_of_condition(residual, dictionary)
            case logical.WindowNode(window=bound.Slide(length, slide)) if length < slide:
                return "a RANGE shorter than its SLIDE"
            case logical.SemiJoin(residual=residual) if residual is not None:
                return "a semi join with a condition"
            case logical.Streamify(kind=StreamKind.RSTREAM):
                return "RSTREAM"
            case logical.Aggregate(aggregates=calls) if any(call.user is not None for call in calls):
                return "an aggregate in Python"
            case logical.SetOp(kind=SetKind()) | logical.WindowNode() | logical.InnerJoin():
                return None
            case logical.Aggregate() | logical.Distinct() | logical.Streamify() | logical.Delay():
                return None
            case logical.SemiJoin() | nodes.Pad():
                return None
            case _:
                return type(node).__name__
    except NoProgramError as error:
        return str(error)
    return None
