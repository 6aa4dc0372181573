"""Links between nodes: Flight streams, output queues, acknowledgements, and the input queue of a node."""
