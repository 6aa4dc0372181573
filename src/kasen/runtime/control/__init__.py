"""The control socket of a running pipeline, and the requests that `kasen ctl` makes of it."""
