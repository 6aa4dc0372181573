"""What Spark and Java say of a fault, for messages of our own."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError


def said(fault: Exception) -> str:
    """The first line, without the plan or the stack beneath it; of Java's, with the name of the exception."""
    words = fault.java_exception.toString() if isinstance(fault, Py4JJavaError) else fault
    return str(words).split("\n")[0]
