"""High availability: nodes that are processes, links between them, and copies that take over."""
