"""Changes to the set of queries, for those who run them: what of the front end they need to know."""

from kasen.cql.bind.change import LiveCatalog, statement_of
from kasen.cql.bound import CatalogChange, Drop, Input, Register, RegisteredQuery, StreamKind

__all__ = [
    "CatalogChange",
    "Drop",
    "Input",
    "LiveCatalog",
    "Register",
    "RegisteredQuery",
    "StreamKind",
    "statement_of",
]
