# pi_dependency(NAME HEADER h [LIBRARY l] PACKAGE deb WHAT text): finds one C library by its header and its library file
# (none: the header is all of it), without pkg-config, so that a cross build needs nothing but the foreign -dev package;
# makes PagedInferDep::NAME. NAME_INCLUDE_DIR and NAME_LIBRARY can be given by hand. Missing: the configure ends and
# names the package.
function(pi_dependency name)
    cmake_parse_arguments(A "" "HEADER;LIBRARY;PACKAGE;WHAT" "" ${ARGN})
    find_path(${name}_INCLUDE_DIR ${A_HEADER})
    set(found ${${name}_INCLUDE_DIR})
    set(files ${A_HEADER})
    set(hints -D${name}_INCLUDE_DIR=...)
    if(A_LIBRARY)
        find_library(${name}_LIBRARY ${A_LIBRARY})
        if(NOT ${name}_LIBRARY)
            set(found "")
        endif()
        string(APPEND files " and lib${A_LIBRARY}")
        string(APPEND hints " -D${name}_LIBRARY=...")
    endif()
    mark_as_advanced(${name}_INCLUDE_DIR ${name}_LIBRARY)
    if(NOT found)
        set(package ${A_PACKAGE})
        if(CMAKE_CROSSCOMPILING AND CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64" AND A_LIBRARY)
            string(APPEND package ":arm64")
        endif()
        message(FATAL_ERROR "Missing: ${A_WHAT}.\n"
            "  Debian, Ubuntu:  apt-get install ${package}\n"
            "  elsewhere: the package with ${files}; if it is in an unusual place, add\n  ${hints}\n")
    endif()
    if(NOT TARGET PagedInferDep::${name})
        if(A_LIBRARY)
            add_library(PagedInferDep::${name} UNKNOWN IMPORTED GLOBAL)
            set_target_properties(PagedInferDep::${name} PROPERTIES IMPORTED_LOCATION "${${name}_LIBRARY}")
        else()
            add_library(PagedInferDep::${name} INTERFACE IMPORTED GLOBAL)
        endif()
        set_target_properties(PagedInferDep::${name} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${${name}_INCLUDE_DIR}")
    endif()
endfunction()

# pi_optional(NAME HEADER h LIBRARY l PACKAGE deb FOR text): a library that the build can go without. Makes option
# PAGEDINFER_NAME, ON where the library is found, with PagedInferDep::NAME; says in the summary what it is for, or which
# package is missing. The option given as ON without the library ends the configure, as pi_dependency does.
macro(pi_optional name)
    cmake_parse_arguments(PI_O "" "HEADER;LIBRARY;PACKAGE;FOR" "" ${ARGN})
    find_path(${name}_INCLUDE_DIR ${PI_O_HEADER})
    find_library(${name}_LIBRARY ${PI_O_LIBRARY})
    mark_as_advanced(${name}_INCLUDE_DIR ${name}_LIBRARY)
    if(${name}_INCLUDE_DIR AND ${name}_LIBRARY) # no option where it is not: a library installed later is taken
        option(PAGEDINFER_${name} "${PI_O_FOR} (lib${PI_O_LIBRARY})" ON)
    endif()
    string(TOLOWER ${name} PI_O_name)
    if(PAGEDINFER_${name})
        pi_dependency(${name} HEADER ${PI_O_HEADER} LIBRARY ${PI_O_LIBRARY} PACKAGE ${PI_O_PACKAGE}
                      WHAT "${PI_O_PACKAGE}, for ${PI_O_FOR}")
        pi_summary(${PI_O_name} "yes: ${PI_O_FOR}")
    elseif(DEFINED PAGEDINFER_${name})
        pi_summary(${PI_O_name} "off (PAGEDINFER_${name}): no ${PI_O_FOR}")
    else()
        pi_summary(${PI_O_name} "not found (Debian, Ubuntu: ${PI_O_PACKAGE}): no ${PI_O_FOR}")
    endif()
endmacro()
