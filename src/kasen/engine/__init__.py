"""The engine: operators that turn batches of changes into batches of changes, and their kernels.

Each concept has a package of its own, with its operators and, beside them, its compiled kernels: `expr`,
`select`, `window`, `aggregate`, `join`, `sets`, `stream` and `loop`; `text` has what concerns strings. The
modules here are what all of them share: the contract (`operator`), the batches that flow, and the buffers
that kernels read and write.
"""
