"""What a node does with its input: an app's queries (here or on Spark), reading files, writing files."""
