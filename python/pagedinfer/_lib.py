"""Loads libpagedinfer: declarations, error codes, and the paths of the packaged files.

The library is PAGEDINFER_LIB, or the one in the package. ctypes releases the GIL during every call."""
from __future__ import annotations

import ctypes
import functools
import os
from typing import Any, Mapping, Optional

try:
    from . import _abi as abi
except ImportError as e:
    raise ImportError('pagedinfer/_abi.py is missing: install the package with pip, or write the file with '
                      'python3 python/gen_abi.py include/pagedinfer.h include/pagedinfer_openai.h python/pagedinfer/_abi.py') from e

FOLDER = os.path.dirname(os.path.abspath(__file__))


class PagedInferError(RuntimeError):
    """A failed call of the library. `code` is the number, `name` is "PI_EINVAL" for example, and `retryable` says
    whether the same call can succeed later."""

    def __init__(self, code: int, message: str = '') -> None:
        self.code = code
        self.name, text, self.retryable = abi.ERRORS.get(code, ('PI_UNKNOWN', 'unknown error', False))
        self.message = message or text
        super().__init__(code, self.message)

    def __str__(self) -> str:
        return f'{self.message} ({self.name})'


def library_path() -> str:
    """The path of the shared library that this process uses."""
    given = os.environ.get('PAGEDINFER_LIB')
    if given: return given
    packaged = os.path.join(FOLDER, 'lib', f'libpagedinfer.so.{abi.PI_ABI_VERSION}')
    return packaged if os.path.exists(packaged) else f'libpagedinfer.so.{abi.PI_ABI_VERSION}'


def tool_path() -> str:
    """The path of the command line tool: PAGEDINFER_BIN, or the one in the package."""
    return os.environ.get('PAGEDINFER_BIN') or os.path.join(FOLDER, 'bin', 'pagedinfer')


def _load() -> Any:
    path = library_path()
    try:
        library = ctypes.CDLL(path)
    except OSError as e:
        raise ImportError(f'cannot load libpagedinfer: {e}; install the package with pip, or set PAGEDINFER_LIB to '
                          'the path of libpagedinfer.so') from e
    library.pi_abi_version.restype = ctypes.c_int
    version = library.pi_abi_version()
    if version != abi.PI_ABI_VERSION:
        raise ImportError(f'{path} has ABI version {version}; this package needs {abi.PI_ABI_VERSION}: '
                          'install a matching pair, or unset PAGEDINFER_LIB')
    return _declare(library, abi.FUNCTIONS)


def _declare(library: Any, functions: Mapping[str, Any]) -> Any:
    """Sets the types of a library's functions."""
    for name, (result, arguments) in functions.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            continue  # an older library of the same ABI: only a call of the function fails
        function.restype, function.argtypes = result, arguments
    return library


@functools.lru_cache(maxsize=None)
def openai_library() -> Any:
    """libpagedinfer-openai, from the folder of libpagedinfer. It uses the libpagedinfer of this process."""
    path = os.path.join(os.path.dirname(library_path()), f'libpagedinfer-openai.so.{abi.PI_ABI_VERSION}')
    try:
        library = ctypes.CDLL(path)
    except OSError as e:
        raise ImportError(f'cannot load libpagedinfer-openai: {e}; build it with -DPAGEDINFER_OPENAI=ON, in the folder of '
                          'libpagedinfer') from e
    return _declare(library, abi.OPENAI_FUNCTIONS)


lib = _load()
__version__: str = lib.pi_version().decode()


def check(code: int, error: Optional[Any] = None) -> int:
    """Returns a count or PI_OK; raises PagedInferError for a negative code."""
    if code >= 0: return code
    message = error.msg.decode('utf-8', 'replace') if error is not None and error.code == code else ''
    raise PagedInferError(code, message)


def sized(struct: Any) -> Any:
    """A new struct with its field `size` set."""
    value = struct()
    value.size = ctypes.sizeof(struct)
    return value
