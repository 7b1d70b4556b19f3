"""python -m pagedinfer COMMAND ...: runs the packaged command line tool, for example `python -m pagedinfer serve`."""
import os
import sys

from ._lib import library_path, tool_path


def main() -> int:
    tool = tool_path()
    if not os.path.isfile(tool):
        print(f'pagedinfer: no tool at {tool}: install the package with pip, or set PAGEDINFER_BIN', file=sys.stderr)
        return 69
    # PAGEDINFER_LIB is a variable of this package; the tool has its library beside it.
    environment = {k: v for k, v in os.environ.items() if k not in ('PAGEDINFER_LIB', 'PAGEDINFER_BIN')}
    folder = os.path.dirname(library_path())
    if folder and os.environ.get('PAGEDINFER_LIB'):
        environment['LD_LIBRARY_PATH'] = ':'.join(filter(None, [folder, environment.get('LD_LIBRARY_PATH')]))
    os.execve(tool, [tool, *sys.argv[1:]], environment)


if __name__ == '__main__':
    sys.exit(main())
