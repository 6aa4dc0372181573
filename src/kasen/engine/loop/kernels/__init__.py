"""The loop machine itself, its table of steps, and what each kind of step does at one instant."""
