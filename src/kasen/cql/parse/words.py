"""The words of the language: which ones cannot be names, and which ones of SQL are not CQL."""

from __future__ import annotations

# Never a name without quotes.
_RESERVED = """
    SELECT DISTINCT FROM WHERE GROUP HAVING ORDER LIMIT UNION EXCEPT INTERSECT WITH INTO AS
    JOIN INNER LEFT RIGHT FULL CROSS NATURAL ON USING
    AND OR NOT IN IS BETWEEN LIKE EXISTS NULL TRUE FALSE CASE WHEN THEN ELSE END
"""
RESERVED = frozenset(_RESERVED.split())

# Words that may name a column, but not rename something without AS: there they mean something else,
# in CQL or in other dialects, and the user should hear about it.
_NOT_ALIASES = """
    OUTER ALL ANY SOME BY OVER FILTER WITHIN OFFSET FETCH QUALIFY WINDOW LATERAL TABLESAMPLE PIVOT UNPIVOT
    SEMI ANTI ASOF MINUS ILIKE SIMILAR RLIKE REGEXP GLOB ESCAPE COLLATE AT DIV XOR ISNULL NOTNULL FOR
    CLUSTER DISTRIBUTE SORT CONNECT PREWHERE MATCH_RECOGNIZE REGISTER REPLACE DROP SET
"""
NOT_ALIASES = RESERVED.union(_NOT_ALIASES.split())

# What a word of other dialects should be instead: (fault, remedy).
REFUSED: dict[str, tuple[str, str]] = {
    "ORDER": ("ORDER BY is not CQL", "a stream's order is its instants; sort what you read"),
    "SORT": ("SORT BY is not CQL", "a stream's order is its instants; sort what you read"),
    "LIMIT": ("LIMIT is not CQL", "use [ROWS n], or an aggregate"),
    "FETCH": ("FETCH is not CQL", "use [ROWS n], or an aggregate"),
    "OFFSET": ("OFFSET is not CQL", "use [ROWS n]"),
    "QUALIFY": ("QUALIFY is not CQL", "use HAVING, or WHERE around a sub-query"),
    "WINDOW": ("WINDOW is not CQL", "write the window in FROM, behind the stream: s [RANGE 5 MINUTES]"),
    "OVER": ("OVER is not CQL", "write a window in FROM, behind the stream, and GROUP BY"),
    "FILTER": ("FILTER is not CQL", "put a CASE into the aggregate: SUM(CASE WHEN x > 0 THEN x END)"),
    "LATERAL": ("LATERAL is not CQL", "join with a sub-query that does not look outside"),
    "TABLESAMPLE": ("TABLESAMPLE is not CQL", "choose rows by a condition in WHERE"),
    "PIVOT": ("PIVOT is not CQL", "write one aggregate of a CASE for each column"),
    "UNPIVOT": ("UNPIVOT is not CQL", "write a UNION ALL of one SELECT for each column"),
    "NATURAL": ("NATURAL JOIN is not CQL", "write JOIN ... ON a.x = b.x"),
    "USING": ("USING is not CQL", "write ON a.x = b.x"),
    "SEMI": ("SEMI JOIN is not CQL", "use IN or EXISTS in WHERE"),
    "ANTI": ("ANTI JOIN is not CQL", "use NOT IN or NOT EXISTS in WHERE"),
    "ASOF": ("ASOF JOIN is not CQL", "join with the other stream's [PARTITION BY key ROWS 1]"),
    "MINUS": ("MINUS is not CQL", "write EXCEPT"),
    "ILIKE": ("ILIKE is not CQL", "write LOWER(a) LIKE 'x%'"),
    "SIMILAR": ("SIMILAR TO is not CQL", "use LIKE, with % and _"),
    "RLIKE": ("RLIKE is not CQL", "use LIKE, with % and _"),
    "REGEXP": ("REGEXP is not CQL", "use LIKE, with % and _"),
    "GLOB": ("GLOB is not CQL", "use LIKE, with % and _"),
    "ESCAPE": ("ESCAPE is not CQL", "use STRPOS, CONTAINS or STARTS_WITH for texts with % or _"),
    "COLLATE": ("COLLATE is not CQL", "texts compare byte by byte; use LOWER or UPPER"),
    "AT": ("AT TIME ZONE is not CQL", "times have no zone: store them in one, such as UTC"),
    "DIV": ("DIV is not CQL", "write /, which truncates integers"),
    "XOR": ("XOR is not CQL", "write <>"),
    "ISNULL": ("ISNULL is not CQL", "write IS NULL"),
    "NOTNULL": ("NOTNULL is not CQL", "write IS NOT NULL"),
    "PREWHERE": ("PREWHERE is not CQL", "write WHERE"),
    "CLUSTER": ("CLUSTER BY is not CQL", "Kasen places rows itself: see kasen explain"),
    "DISTRIBUTE": ("DISTRIBUTE BY is not CQL", "Kasen places rows itself: see kasen explain"),
    "CONNECT": ("CONNECT BY is not CQL", "register a loop of queries with a delay: ISTREAM(...)<Now>"),
    "MATCH_RECOGNIZE": ("MATCH_RECOGNIZE is not CQL", "join the stream's windows with each other"),
    "VALUES": ("VALUES is not CQL", "register a RELATION and read it from a file"),
    "UNNEST": ("UNNEST is not CQL", "there are no lists"),
    "FOR": ("FOR is not CQL", "a query only reads"),
}

# The first words of other languages' statements.
FOREIGN_STATEMENTS: dict[str, str] = {
    "SELECT": "a query needs a name: REGISTER QUERY name AS SELECT ...",
    "WITH": "a query needs a name: REGISTER QUERY name AS WITH ...",
    "ISTREAM": "a query needs a name: REGISTER QUERY name AS ISTREAM(...)",
    "DSTREAM": "a query needs a name: REGISTER QUERY name AS DSTREAM(...)",
    "RSTREAM": "a query needs a name: REGISTER QUERY name AS RSTREAM(...)",
    "CREATE": "write REGISTER STREAM, REGISTER RELATION or REGISTER QUERY",
    "INSERT": "name the sink behind the query: REGISTER QUERY name AS SELECT ... INTO 'csv' OPTIONS (...)",
    "UPDATE": "data changes by what streams bring; a RELATION takes changes with a diff column",
    "DELETE": "data changes by what streams bring; a RELATION takes changes with a diff column",
    "ALTER": "write REPLACE QUERY name AS ...",
}

# The words that continue a query: what a misspelled alias may have been meant to be.
CLAUSES = (
    "FROM",
    "WHERE",
    "GROUP",
    "HAVING",
    "UNION",
    "EXCEPT",
    "INTERSECT",
    "JOIN",
    "INTO",
    "LEFT",
    "RIGHT",
)
