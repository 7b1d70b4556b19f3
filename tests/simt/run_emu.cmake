# Checks that `pagedinfer eval --cases` generates the same tokens on the emulated device as on the CPU.
#     cmake -DPROGRAM=... "-DEMULATOR=..." -DMODEL=... -DCASES=... ["-DFLAGS=FLAG;..."] -P run_emu.cmake
cmake_minimum_required(VERSION 3.21)
foreach(device cpu emu)
    execute_process(COMMAND ${EMULATOR} ${PROGRAM} eval -m ${MODEL} --cases ${CASES} ${FLAGS} --device ${device} --matmul exact
                    OUTPUT_VARIABLE out_${device} ERROR_VARIABLE note RESULT_VARIABLE status TIMEOUT 500)
    if(NOT status EQUAL 0)
        message(FATAL_ERROR "eval --device ${device} ended with ${status}:\n${note}")
    endif()
endforeach()
if(NOT out_cpu MATCHES "\"name\": \"long\", \"greedy\"")
    message(FATAL_ERROR "the cases did not run:\n${out_cpu}")
endif()
if(NOT out_cpu STREQUAL out_emu)
    message(FATAL_ERROR "cpu:\n${out_cpu}\nemu:\n${out_emu}")
endif()
