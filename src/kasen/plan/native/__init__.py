"""What of a plan Spark can do itself, as Spark SQL text. No Spark is needed to know it."""
