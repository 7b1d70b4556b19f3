#!/bin/sh
# run.sh: starts the backend. LocalAI calls it as `run.sh --addr HOST:PORT`, from any folder.
#
# The package has its own C library and loader, so it runs on systems with another one. The process replaces the shell:
# signals and the watch of the parent need that.
set -e
here=$(dirname "$(readlink -f "$0")")
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
if [ -f "$here/lib/ld.so" ]; then
    exec "$here/lib/ld.so" "$here/pagedinfer-localai" "$@"
fi
exec "$here/pagedinfer-localai" "$@"
