"""The instructions of programs, by number.

Programs for one row know them all (row_program); programs over blocks of rows know some, and those on
integers and decimals are also done to whole vectors (exact).
"""

from __future__ import annotations

LOAD, MOVE, JUMP, JUMP_FALSE, JUMP_TRUE, JUMP_NOT_TRUE, JUMP_NOT_NULL = range(7)
AND, OR, NOT, IS_NULL, IS_DISTINCT, EQUAL, UNEQUAL, PICK = range(7, 15)
#: Comparisons and PICK order values as P says; as in operators.batch.
LESS, LESS_EQUAL = 15, 16
ADD, SUBTRACT, MULTIPLY, DIVIDE, MODULO, NEGATE, ABSOLUTE = range(17, 24)
ADD_DOUBLE, SUBTRACT_DOUBLE, MULTIPLY_DOUBLE, DIVIDE_DOUBLE, MODULO_DOUBLE = range(24, 29)
NEGATE_DOUBLE, ABSOLUTE_DOUBLE, SIGN, ROOT, FLOOR, CEILING, ROUND_DOUBLE, ROUND_DIGITS = range(29, 37)
ADD_DECIMAL, MULTIPLY_DECIMAL, SCALE_UP, SCALE_DOWN, ROUND_UNIT, FLOOR_UNITS, CEILING_UNITS = range(37, 44)
TRUNCATE_UNITS, DOUBLE_TO_INT, DOUBLE_TO_DECIMAL, DECIMAL_TO_DOUBLE, NULL_OF = range(44, 49)
