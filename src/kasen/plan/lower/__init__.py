"""From rewritten plans to running operators: joins get a method, keys become columns, nodes operators."""
