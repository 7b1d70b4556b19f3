# Runs an example on a model with several prompts at the same time. Its output must equal the output of REFERENCE (the
# example poll) for each prompt alone, one after the other.
#
#     cmake -DPROGRAM=... -DREFERENCE=... -DEMULATOR=... -DMODEL=... -DDIR=... [-DCANCELS=1] -P run_example.cmake
#
# CANCELS: the program cancels its last request and reports that on standard error; the comparison leaves out its
# answer. Bytes are compared as hexadecimal digits, because a random model's answers are not valid text.
cmake_minimum_required(VERSION 3.21)
set(prompts "the other hand" "you and the" "the other day" "once" "and on")
get_filename_component(name ${PROGRAM} NAME_WE)

# run(PROGRAM ARGUMENT...): sets hex to the bytes of standard output, and note to standard error.
function(run program)
    set(file ${DIR}/example-${name}.out)
    execute_process(COMMAND ${EMULATOR} ${program} ${ARGN} OUTPUT_FILE ${file} ERROR_VARIABLE note
                    RESULT_VARIABLE status TIMEOUT 300)
    if(NOT status EQUAL 0)
        message(FATAL_ERROR "${program} ended with ${status}:\n${note}")
    endif()
    file(READ ${file} hex HEX)
    set(hex "${hex}" PARENT_SCOPE)
    set(note "${note}" PARENT_SCOPE)
endfunction()

set(alone ${prompts})
if(CANCELS)
    list(POP_BACK alone)
endif()
set(want "")
set(answers "")
foreach(prompt ${alone})
    run(${REFERENCE} ${MODEL} "${prompt}")
    string(LENGTH "${hex}" length)
    if(length LESS 20)
        message(FATAL_ERROR "the answer to \"${prompt}\" is too short to say anything: ${hex}")
    endif()
    if(hex IN_LIST answers)
        message(FATAL_ERROR "two prompts have the same answer: the test could not detect a mix-up")
    endif()
    list(APPEND answers "${hex}")
    string(APPEND want "${hex}")
endforeach()
run(${PROGRAM} ${MODEL} ${prompts})
if(CANCELS)
    list(LENGTH prompts n)
    if(NOT note MATCHES "prompt ${n}: canceled")
        message(FATAL_ERROR "the last request was not cancelled: ${note}")
    endif()
    string(LENGTH "${want}" length)
    string(SUBSTRING "${hex}" 0 ${length} hex)
elseif(NOT note STREQUAL "")
    message(FATAL_ERROR "unexpected words on standard error: ${note}")
endif()
if(NOT hex STREQUAL want)
    message(FATAL_ERROR "${name}: with all prompts together\n${hex}\nalone\n${want}")
endif()

# A failing program names the error and exits with another status.
execute_process(COMMAND ${EMULATOR} ${PROGRAM} ${MODEL}.none prompt OUTPUT_VARIABLE out ERROR_VARIABLE note
                RESULT_VARIABLE status TIMEOUT 60)
if(NOT status EQUAL 1 OR NOT out STREQUAL "" OR NOT note MATCHES "no such file")
    message(FATAL_ERROR "${name} without its model: status ${status}, \"${out}\", \"${note}\"")
endif()
