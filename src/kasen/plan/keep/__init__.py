"""What a replaced query keeps: which windows are the same, what they remember, and how the new plan
takes that over.
"""
