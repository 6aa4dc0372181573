"""The Python API: pipelines that a program feeds and reads.

`pipeline` has `Pipeline`, which a program registers its queries with, and `query` has `Query`, which hands
out their answers. From its first row on a pipeline runs in a mode (`mode`): the program pushes rows
(`push_mode`), or the pipeline reads its sources itself, in this process (`source_mode`) or on Spark
(`spark_mode`).
"""

from kasen.aggregates import UserAggregate
from kasen.api.pipeline import Pipeline
from kasen.api.push_mode import Time
from kasen.api.query import ForeachFrame, Query
from kasen.api.unread import ForeachBatch
from kasen.connect.chunk import DeadLetter
from kasen.connect.plain import Change
from kasen.cql.bound import App
from kasen.runtime.input.pressure import Admission

__all__ = [
    "Admission",
    "App",
    "Change",
    "DeadLetter",
    "ForeachBatch",
    "ForeachFrame",
    "Pipeline",
    "Query",
    "Time",
    "UserAggregate",
]
