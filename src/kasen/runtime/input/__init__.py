"""The way in: rows are read, admitted, ordered by instant, and refused if they are late."""
