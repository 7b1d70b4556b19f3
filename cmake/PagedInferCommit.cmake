# Writes build_commit.c with the git commit of the build. Runs at each build; the file changes only when the commit
# changes. Outside of this tree's own repository the commit is "unknown" and the number 0.
#
#     cmake -DSOURCE=DIR -DOUTPUT=FILE -P PagedInferCommit.cmake
set(commit unknown)
set(number 0)
execute_process(COMMAND git rev-parse --show-toplevel WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE top ERROR_QUIET
                OUTPUT_STRIP_TRAILING_WHITESPACE)
get_filename_component(source ${SOURCE} REALPATH)
if(top STREQUAL source)
    execute_process(COMMAND git rev-parse --short=8 HEAD WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE found ERROR_QUIET
                    OUTPUT_STRIP_TRAILING_WHITESPACE)
    execute_process(COMMAND git rev-list --count HEAD WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE counted ERROR_QUIET
                    OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(found AND counted)
        set(commit ${found})
        set(number ${counted})
    endif()
endif()
set(text "const char build_commit[] = \"${commit}\";\nconst int build_number = ${number};\n")
set(old "")
if(EXISTS ${OUTPUT})
    file(READ ${OUTPUT} old)
endif()
if(NOT old STREQUAL text)
    file(WRITE ${OUTPUT} "${text}")
endif()
