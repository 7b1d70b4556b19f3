# The summary that the configure step prints at its end: enabled parts, and parts that are left out.

# `pi_summary(WHAT STATE)`: adds one line to the summary.
function(pi_summary what state)
    set_property(GLOBAL APPEND PROPERTY PI_SUMMARY_NAMES "${what}")
    string(REPLACE ";" ", " state "${state}")
    set_property(GLOBAL APPEND PROPERTY PI_SUMMARY_STATES "${state}")
endfunction()

function(pi_print_summary)
    get_property(names GLOBAL PROPERTY PI_SUMMARY_NAMES)
    get_property(states GLOBAL PROPERTY PI_SUMMARY_STATES)
    message(STATUS "libpagedinfer ${PROJECT_VERSION}")
    foreach(what state IN ZIP_LISTS names states)
        string(LENGTH "${what}" n)
        math(EXPR n "14 - ${n}")
        if(n GREATER 0)
            string(REPEAT " " ${n} gap)
        else()
            set(gap "")
        endif()
        message(STATUS "  ${what}${gap} ${state}")
    endforeach()
endfunction()
