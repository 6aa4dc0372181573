"""Scalar expressions. Each evaluator does what the others cannot:

- `vector` and `scalar`: whole columns, with numpy. All of SQL: texts, NULLs, failures that are counted.
- `row_program`: one row, inside a kernel. For loops and small batches, where a call of numpy costs too much.
- `block_program`: 1024 rows at a time. For long batches without NULLs, which vectors push through memory.

A block program is the translated code of a row program, so two compilers (plan/lower/expr), over one walk,
make all three. What exact arithmetic means stands once, in `kernels/exact`; `scalar` lifts it to vectors.
The fourth evaluator is Spark's own: plan/native writes an expression as Spark SQL where that gives the same
values.
"""
