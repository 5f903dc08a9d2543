"""Python's syntax trees."""

import ast
import gc


def parsed(code: str) -> ast.Module:
    """The tree of `code`, made without the garbage collector.

    A collection may end a task whose error nobody took; asyncio logs its traceback, and `traceback` parses code to
    do so. Python 3.11 has one count of the depth for all parsers: one that runs inside another leaves the outer one
    with a SystemError (https://github.com/python/cpython/issues/106905).
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(code)
    finally:
        if enabled:
            gc.enable()
