# The CUDA backend: src/backend/cuda/*.c (host) and launch_*.cu there, which include kernels/*_kernels.cuh and launch
# them, added to the library where there are such files and the toolkit is found. Sets PI_DEVICES (for the summary) and
# PI_CUDA_LIBRARIES (what the library links with).
set(PI_DEVICES cpu)
set(PI_CUDA_LIBRARIES "")
if(NOT PAGEDINFER_CUDA MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "PAGEDINFER_CUDA is AUTO, ON or OFF, not '${PAGEDINFER_CUDA}'.")
endif()
file(GLOB PI_CUDA_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/cuda/*.c)
file(GLOB PI_KERNELS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/cuda/launch_*.cu)

if(PAGEDINFER_CUDA STREQUAL "OFF")
    message(STATUS "CUDA: switched off, building for the CPU")
elseif(PAGEDINFER_CUDA STREQUAL "AUTO" AND (PAGEDINFER_TESTS OR PAGEDINFER_FUZZ))
    message(STATUS "CUDA: left out where tests are built, whose emulator runs the same kernels (PAGEDINFER_CUDA=ON asks "
                   "for it)")
else()
    find_package(CUDAToolkit 12.5 QUIET) # cudaGetDriverEntryPointByVersion
    if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE)
        if(NOT CMAKE_CUDA_COMPILER)
            set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
        endif()
        set(PI_CUDA_ARCHITECTURES ${CMAKE_CUDA_ARCHITECTURES}) # what the user asked for; enable_language sets a default
        if(NOT PI_CUDA_ARCHITECTURES)
            set(PI_CUDA_ARCHITECTURES 80 90a-real)
            if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.9)
                list(APPEND PI_CUDA_ARCHITECTURES 120a-real 121a-real)
            endif()
            set(CMAKE_CUDA_ARCHITECTURES ${PI_CUDA_ARCHITECTURES})
        endif()
        enable_language(CUDA)
        set(PI_DEVICES "cpu, cuda ${CUDAToolkit_VERSION}")
        target_sources(pi_objects PRIVATE ${PI_CUDA_SOURCES})
        target_compile_definitions(pi_objects PUBLIC PI_HAVE_CUDA)
        target_include_directories(pi_objects PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
        # The runtime is linked in; a machine without a driver still starts, and says that it found no device.
        set(PI_CUDA_LIBRARIES CUDA::cudart_static ${CMAKE_DL_LIBS})
        if(PI_KERNELS)
            add_library(pi_kernels OBJECT ${PI_KERNELS})
            set_target_properties(pi_kernels PROPERTIES POSITION_INDEPENDENT_CODE ON CUDA_STANDARD 17
                                  CUDA_ARCHITECTURES "${PI_CUDA_ARCHITECTURES}" CUDA_VISIBILITY_PRESET hidden)
            target_compile_options(pi_kernels PRIVATE -fmad=false) # a fused multiply-add is one because the source says so
            target_include_directories(pi_kernels PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src
                                                          ${PROJECT_SOURCE_DIR}/kernels)
            list(APPEND PI_CUDA_LIBRARIES $<BUILD_INTERFACE:pi_kernels>)
        endif()
    elseif(PAGEDINFER_CUDA STREQUAL "ON")
        message(FATAL_ERROR "PAGEDINFER_CUDA=ON, but no CUDA toolkit (12.5 or newer) with nvcc was found "
                            "(set CUDAToolkit_ROOT or CUDACXX).")
    else()
        message(STATUS "CUDA: no toolkit found, building for the CPU (set CUDAToolkit_ROOT or CUDACXX if there is one)")
    endif()
endif()
