"""Scalar expressions, computed three ways: whole vectors (`vector`, `scalar`), blocks of a long batch
(`block_program`), and single rows (`row_program`). The compilers are in plan/lower/expr.
"""
