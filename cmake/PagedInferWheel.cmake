# Install rules of the Python wheel (pyproject.toml, option PAGEDINFER_WHEEL): library, tool, header and the generated
# declarations go into the package's folder. A wheel has no symbolic links, so the file has the name of the SONAME.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set_target_properties(pagedinfer PROPERTIES VERSION ${PI_ABI_VERSION} SOVERSION ${PI_ABI_VERSION})
install(TARGETS pagedinfer LIBRARY DESTINATION pagedinfer/lib NAMELINK_SKIP)
if(TARGET pagedinfer_cli)
    set_target_properties(pagedinfer_cli PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
    install(TARGETS pagedinfer_cli RUNTIME DESTINATION pagedinfer/bin)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/include/pagedinfer.h DESTINATION pagedinfer/include)

set(abi ${PROJECT_BINARY_DIR}/_abi.py)
add_custom_command(OUTPUT ${abi}
                   COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/python/gen_abi.py
                           ${PROJECT_SOURCE_DIR}/include/pagedinfer.h ${abi}
                   DEPENDS ${PROJECT_SOURCE_DIR}/python/gen_abi.py ${PROJECT_SOURCE_DIR}/include/pagedinfer.h
                   COMMENT "Writing _abi.py" VERBATIM)
add_custom_target(pagedinfer_abi ALL DEPENDS ${abi})
install(FILES ${abi} DESTINATION pagedinfer)
