# Toolchain: aarch64 Linux on a Debian or Ubuntu host, tests under qemu-user.
#     dpkg --add-architecture arm64 && apt-get update
#     apt-get install gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user libpcre2-dev:arm64 libjansson-dev:arm64 \
#                     libcmocka-dev:arm64
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
find_program(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++) # only for the SIMT emulator
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
find_program(PI_QEMU NAMES qemu-aarch64 qemu-aarch64-static)
if(PI_QEMU)
    # An aarch64 program finds multiarch libraries by itself; only a machine without them needs -L.
    if(EXISTS /lib/ld-linux-aarch64.so.1)
        set(CMAKE_CROSSCOMPILING_EMULATOR "${PI_QEMU};-cpu;max")
    else()
        set(CMAKE_CROSSCOMPILING_EMULATOR "${PI_QEMU};-cpu;max;-L;/usr/aarch64-linux-gnu")
    endif()
endif()
