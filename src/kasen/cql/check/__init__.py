"""What is checked of a bound app as a whole: loops need a delay, sizes have limits, doubtful things get
a warning.
"""
