"""The way in on Spark: inputs as DataFrames, rows of a micro-batch in reading order, and what bounds them."""
