# Static programs with musl, for Linux on the processor that SATCHEL_MUSL names (x86_64, aarch64): pip install ziglang
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES SATCHEL_MUSL)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${SATCHEL_MUSL})
# zig turns undefined behaviour into traps unless told otherwise; a release is to be small and fast.
set(CMAKE_CXX_COMPILER ${CMAKE_CURRENT_LIST_DIR}/zig-c++ -target ${SATCHEL_MUSL}-linux-musl
    -fno-sanitize=undefined)
set(CMAKE_AR ${CMAKE_CURRENT_LIST_DIR}/zig-ar CACHE FILEPATH "" FORCE)
set(CMAKE_RANLIB ${CMAKE_CURRENT_LIST_DIR}/zig-ranlib CACHE FILEPATH "" FORCE)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
set(CMAKE_HAVE_LIBC_PTHREAD TRUE CACHE BOOL "threads are in musl")
