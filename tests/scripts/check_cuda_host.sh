#!/usr/bin/env bash
# check_cuda_host.sh: compiles the host code of the CUDA backend as a Release build with CUDA does, without warnings.
#     bash tests/scripts/check_cuda_host.sh [JOBS]
# Builds with tests compile the emulator's version of it, with less optimization; some warnings need more. Exit 77: no
# CUDA toolkit.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
nvcc=${CUDACXX:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
[ -x "$nvcc" ] || { echo "no CUDA toolkit"; exit 77; }
include=$(dirname "$(readlink -f "$nvcc")")/../include
files=(src/backend/cuda/*.c src/backend/devices.c)
printf '%s\0' "${files[@]}" | xargs -0 -n 1 -P "${1:-$(nproc)}" "${CC:-cc}" -std=gnu11 -O3 -DNDEBUG -fPIC -fvisibility=hidden \
    -ffp-contract=off -Wall -Wextra -Wpedantic -Wno-overlength-strings -Werror -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 \
    -DPI_HAVE_CUDA -Iinclude -Isrc -isystem "$include" -c -o /dev/null || exit 1
echo "host code of the CUDA backend: ${#files[@]} files compile without warnings"
