"""From CQL text to syntax trees: tokens, then statements, queries, FROM clauses, expressions and types."""
