"""Short ways to bind a query in a test, behind the inputs that tests share."""

from __future__ import annotations

import pytest

from kasen.cql.bind.app import bind_text
from kasen.cql.bound import Query, Select
from kasen.errors import QueryError
from tests.cql.corpus import registered


def bind(query: str) -> Query:
    """The bound query."""
    return bind_text(registered(query)).queries[-1].query


def block(query: str) -> Select:
    """The bound query, which is a SELECT block."""
    bound = bind(query)
    assert isinstance(bound, Select)
    return bound


def types(query: str) -> list[str]:
    """The types of the query's columns."""
    return [str(type_) for type_ in bind(query).schema.types]


def names(query: str) -> list[str]:
    """The names of the query's columns."""
    return list(bind(query).schema.names)


def refused(query: str) -> QueryError:
    """The error that the query is refused with."""
    return refused_text(registered(query))


def refused_text(text: str) -> QueryError:
    """The error that the app is refused with."""
    with pytest.raises(QueryError) as caught:
        bind_text(text)
    return caught.value
