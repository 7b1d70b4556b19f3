# The CUDA backend: src/backend/cuda/*.c (host), and launch_*.cu there, which include and launch kernels/*_kernels.cuh.
# Sets PI_CUDA_LIBRARIES (libraries that the library links with).
#
# The kernels take minutes to compile for each target. So AUTO builds them only for the GPUs of this machine, and not
# at all without one. ON builds for all targets. CMAKE_CUDA_ARCHITECTURES builds for the given targets, also with AUTO.
set(PI_CUDA_LIBRARIES "")
if(NOT PAGEDINFER_CUDA MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "PAGEDINFER_CUDA must be AUTO, ON or OFF, not '${PAGEDINFER_CUDA}'.")
endif()
file(GLOB PI_CUDA_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/cuda/*.c)
file(GLOB PI_KERNELS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/cuda/launch_*.cu)

# pi_gpu_targets(LIST): sets LIST to the toolkit's targets that this machine's GPUs run. LIST is empty without a GPU of
# compute capability 8.0 or newer.
function(pi_gpu_targets list)
    set(targets "")
    find_program(PI_NVIDIA_SMI nvidia-smi)
    mark_as_advanced(PI_NVIDIA_SMI)
    if(PI_NVIDIA_SMI AND NOT CMAKE_CROSSCOMPILING)
        execute_process(COMMAND ${PI_NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader TIMEOUT 20
                        OUTPUT_VARIABLE text RESULT_VARIABLE rc ERROR_QUIET)
        if(rc EQUAL 0)
            string(REGEX MATCHALL "[0-9]+\\.[0-9]" capabilities "${text}")
        endif()
    endif()
    foreach(capability ${capabilities})
        string(REPLACE "." "" target "${capability}")
        if(target MATCHES "^12[01]$" AND "120f-real" IN_LIST PI_CUDA_TARGETS)
            list(APPEND targets 120f-real)
        elseif("${target}a-real" IN_LIST PI_CUDA_TARGETS)
            list(APPEND targets ${target}a-real)
        elseif(target GREATER_EQUAL 80 AND target LESS 90)
            list(APPEND targets 80-real)
        elseif(target GREATER_EQUAL 90)
            list(APPEND targets 80-virtual) # the driver compiles it
        endif()
    endforeach()
    list(REMOVE_DUPLICATES targets)
    set(${list} "${targets}" PARENT_SCOPE)
endfunction()

# Sets PI_CUDA_ARCHITECTURES to the targets (empty: no CUDA backend), and why to the reason.
set(PI_CUDA_ARCHITECTURES "")
set(why "")
if(PAGEDINFER_CUDA STREQUAL "OFF")
    set(why "off (PAGEDINFER_CUDA)")
elseif(PAGEDINFER_CUDA STREQUAL "AUTO" AND (PAGEDINFER_TESTS OR PAGEDINFER_FUZZ))
    set(why "no: left out in builds with tests, which run the kernels on an emulator (PAGEDINFER_CUDA=ON builds it)")
else()
    find_package(CUDAToolkit QUIET)
    set(least 12.8) # has PTX 8.7, which kernels/ptx.cuh needs
    # 80 includes PTX, which the driver compiles for devices without code of their own. 120f runs on sm_120 and sm_121.
    set(PI_CUDA_TARGETS 80 90a-real)
    if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.9)
        list(APPEND PI_CUDA_TARGETS 120f-real)
    else()
        list(APPEND PI_CUDA_TARGETS 120a-real)
    endif()
    set(lack "")
    if(NOT CUDAToolkit_FOUND OR NOT CUDAToolkit_NVCC_EXECUTABLE)
        set(lack "no CUDA toolkit (${least} or newer) with nvcc was found")
    elseif(CUDAToolkit_VERSION VERSION_LESS least)
        set(lack "the CUDA toolkit of ${CUDAToolkit_NVCC_EXECUTABLE} is ${CUDAToolkit_VERSION}, ${least} or newer is needed")
    endif()
    if(lack)
        set(why "no: ${lack}; set CUDAToolkit_ROOT or CUDACXX to use another")
        if(PAGEDINFER_CUDA STREQUAL "ON" OR CMAKE_CUDA_ARCHITECTURES)
            message(FATAL_ERROR "PAGEDINFER_CUDA=${PAGEDINFER_CUDA}, but ${lack} (set CUDAToolkit_ROOT or CUDACXX).")
        endif()
    elseif(CMAKE_CUDA_ARCHITECTURES)
        set(PI_CUDA_ARCHITECTURES ${CMAKE_CUDA_ARCHITECTURES})
    elseif(PAGEDINFER_CUDA STREQUAL "ON")
        set(PI_CUDA_ARCHITECTURES ${PI_CUDA_TARGETS})
    else()
        pi_gpu_targets(PI_CUDA_ARCHITECTURES)
        set(why "no: found toolkit ${CUDAToolkit_VERSION}, but no GPU (nvidia-smi). PAGEDINFER_CUDA=ON builds for all \
targets, CMAKE_CUDA_ARCHITECTURES=90a-real (or others) for one")
    endif()
endif()

if(PI_CUDA_ARCHITECTURES)
    if(NOT CMAKE_CUDA_COMPILER)
        set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
    endif()
    set(CMAKE_CUDA_ARCHITECTURES OFF) # otherwise enable_language sets a default
    enable_language(CUDA)
    target_sources(pi_objects PRIVATE ${PI_CUDA_SOURCES})
    list(JOIN PI_CUDA_ARCHITECTURES ", " names)
    set_source_files_properties(${PROJECT_SOURCE_DIR}/src/backend/cuda/runtime_cuda.c PROPERTIES
                                COMPILE_DEFINITIONS "PI_CUDA_ARCHITECTURES=\"${names}\"")
    target_compile_definitions(pi_objects PUBLIC PI_HAVE_CUDA)
    target_include_directories(pi_objects PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
    # The runtime is linked statically: without a driver the program still starts, and reports that it found no device.
    set(PI_CUDA_LIBRARIES CUDA::cudart_static ${CMAKE_DL_LIBS})
    add_library(pi_kernels OBJECT ${PI_KERNELS})
    # The targets are options of nvcc, for compiling and for linking: CMake before 4.1 refuses family targets (120f).
    set_target_properties(pi_kernels PROPERTIES POSITION_INDEPENDENT_CODE ON CUDA_STANDARD 17 CUDA_ARCHITECTURES OFF
                          CUDA_VISIBILITY_PRESET hidden)
    set(targets "")
    foreach(target ${PI_CUDA_ARCHITECTURES})
        string(REGEX MATCH "^[0-9]+[af]?" n "${target}")
        if(NOT target MATCHES "^[0-9]+[af]?(-real|-virtual)?$")
            message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES has '${target}': give numbers, for example 90a-real or 80.")
        endif()
        if(NOT target MATCHES "-virtual$")
            list(APPEND targets -gencode arch=compute_${n},code=sm_${n})
        endif()
        if(NOT target MATCHES "-real$")
            list(APPEND targets -gencode arch=compute_${n},code=compute_${n})
        endif()
    endforeach()
    # Kernels call functions of other files (PI_SHARED in kernels/device.cuh), so the device linker joins the files.
    # Files with setmaxnreg (wgmma; many rows in FP4) call none: in relocatable code the compiler ignores setmaxnreg.
    list(JOIN targets " " options)
    target_compile_options(pi_kernels PRIVATE "SHELL:${options}")
    set(relocatable ${PI_KERNELS})
    list(FILTER relocatable EXCLUDE REGEX "wgmma|launch_(fp4|fp4_glu|moe_fp4)\\.cu$")
    set_property(SOURCE ${relocatable} APPEND PROPERTY COMPILE_OPTIONS -rdc=true)
    # These files have functions of many kernels: the limits of registers are the ones of the kernels that call them.
    set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/backend/cuda/launch_tail_products.cu
                 APPEND PROPERTY COMPILE_OPTIONS --maxrregcount=128)
    set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/backend/cuda/launch_tail_input.cu
                 APPEND PROPERTY COMPILE_OPTIONS --maxrregcount=64)
    set(linked ${PROJECT_BINARY_DIR}/kernels_linked${CMAKE_CUDA_OUTPUT_EXTENSION})
    add_custom_command(
        OUTPUT ${linked} DEPENDS pi_kernels $<TARGET_OBJECTS:pi_kernels> COMMAND_EXPAND_LISTS VERBATIM
        COMMENT "Linking device code"
        COMMAND ${CMAKE_CUDA_COMPILER} ${targets} -dlink -Xcompiler -fPIC $<TARGET_OBJECTS:pi_kernels> -o ${linked})
    add_custom_target(pi_kernels_link DEPENDS ${linked})
    add_library(pi_kernels_linked INTERFACE)
    target_sources(pi_kernels_linked INTERFACE ${linked})
    add_dependencies(pi_kernels_linked pi_kernels_link)
    # The compiler must not fuse multiply and add: only the source decides.
    target_compile_options(pi_kernels PRIVATE -fmad=false)
    # By default nvcc compresses only relocatable and linked code.
    target_compile_options(pi_kernels PRIVATE -Xfatbin=-compress-all)
    target_include_directories(pi_kernels PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src
                                                  ${PROJECT_SOURCE_DIR}/kernels)
    list(APPEND PI_CUDA_LIBRARIES $<BUILD_INTERFACE:pi_kernels> $<BUILD_INTERFACE:pi_kernels_linked>)
    # The self-test's kernel checks are C++. Its run-time library is linked anyway, because nvcc's objects need it.
    enable_language(CXX)
    file(GLOB checks CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/selftest/*.cpp)
    add_library(pi_selftest OBJECT ${checks})
    set_target_properties(pi_selftest PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON
                          CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
    target_include_directories(pi_selftest PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(pi_selftest PRIVATE pi_flags Threads::Threads)
    list(APPEND PI_CUDA_LIBRARIES $<BUILD_INTERFACE:pi_selftest>)
    pi_summary(CUDA "yes: toolkit ${CUDAToolkit_VERSION}, kernels for ${PI_CUDA_ARCHITECTURES}")
else()
    pi_summary(CUDA "${why}")
endif()
