"""Set operations over changes: DISTINCT, UNION [ALL], INTERSECT [ALL] and EXCEPT [ALL]."""
