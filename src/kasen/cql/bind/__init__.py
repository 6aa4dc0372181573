"""From syntax trees to bound statements: names resolved, types known, every coercion explicit.

`app` binds a whole app, `change` a change of queries while data flows; the other modules bind one clause
each, and `expr` the expressions in them.
"""
