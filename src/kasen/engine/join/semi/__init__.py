"""Semi joins and anti joins: left rows that have, or lack, a match on the right."""
