"""Pipelines on Spark. pyspark lives here and nowhere else."""
