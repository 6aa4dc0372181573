"""The walk over a bound expression that compilers to vectors and to programs have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from kasen.cql.expr import Call, Case, Cast, Column, Expr, Literal
from kasen.engine.text.dictionary import Dictionary
from kasen.types import Type

#: What a part of an expression is compiled to.
Part = TypeVar("Part")


class ExprCompiler(ABC, Generic[Part]):
    """Compiles an expression from the inside out. Columns are positions in the batch."""

    def __init__(self, dictionary: Dictionary) -> None:
        self._dictionary = dictionary
        if not len(dictionary):
            dictionary.constant("")  # a NULL text is held as code 0, which must be some text's

    def compile(self, expr: Expr) -> Part:
        match expr:
            case Column():
                return self._column(expr)
            case Literal():
                return self._literal(expr)
            case Cast(type=type_, arg=arg):
                return self._cast(arg.type, type_, self.compile(arg))
            case Case():
                return self._case(expr)
            case Call(op="and" | "or" | "coalesce"):
                return self._lazy(expr)
            case Call():
                return self._call(expr)
        raise AssertionError(f"{type(expr).__name__} does not reach the operators")

    @abstractmethod
    def _column(self, expr: Column) -> Part: ...

    @abstractmethod
    def _literal(self, expr: Literal) -> Part: ...

    @abstractmethod
    def _cast(self, have: Type, want: Type, arg: Part) -> Part: ...

    @abstractmethod
    def _case(self, expr: Case) -> Part: ...

    @abstractmethod
    def _lazy(self, expr: Call) -> Part:
        """An operation that needs an argument only if those before it leave the result open."""

    @abstractmethod
    def _call(self, expr: Call) -> Part:
        """An operation that needs all its arguments."""
