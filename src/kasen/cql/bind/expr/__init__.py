"""Binding of expressions: names in scope, calls, aggregates, predicates and coercions."""
