# The summary that ends the configure: what was found, and what the build goes without.

# pi_summary(WHAT STATE): one line of it.
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
