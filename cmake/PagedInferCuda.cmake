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
        if("${target}a-real" IN_LIST PI_CUDA_TARGETS)
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
    set(PI_CUDA_TARGETS 80 90a-real 120a-real)
    if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.9)
        list(APPEND PI_CUDA_TARGETS 121a-real)
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
    set(CMAKE_CUDA_ARCHITECTURES ${PI_CUDA_ARCHITECTURES}) # otherwise enable_language sets a default
    enable_language(CUDA)
    target_sources(pi_objects PRIVATE ${PI_CUDA_SOURCES})
    target_compile_definitions(pi_objects PUBLIC PI_HAVE_CUDA)
    target_include_directories(pi_objects PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
    # The runtime is linked statically: without a driver the program still starts, and reports that it found no device.
    set(PI_CUDA_LIBRARIES CUDA::cudart_static ${CMAKE_DL_LIBS})
    add_library(pi_kernels OBJECT ${PI_KERNELS})
    set_target_properties(pi_kernels PROPERTIES POSITION_INDEPENDENT_CODE ON CUDA_STANDARD 17
                          CUDA_ARCHITECTURES "${PI_CUDA_ARCHITECTURES}" CUDA_VISIBILITY_PRESET hidden)
    # The compiler must not fuse multiply and add: only the source decides.
    target_compile_options(pi_kernels PRIVATE -fmad=false)
    target_include_directories(pi_kernels PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src
                                                  ${PROJECT_SOURCE_DIR}/kernels)
    list(APPEND PI_CUDA_LIBRARIES $<BUILD_INTERFACE:pi_kernels>)
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
