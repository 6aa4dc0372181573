"""The way out: answers and refused rows on their way to sinks and readers, and how many rows run at once."""
