# Install rules of the Python wheel (pyproject.toml, option PAGEDINFER_WHEEL): libraries, tool, headers and the generated
# declarations go into the package's folder. A wheel has no symbolic links, so the file has the name of the SONAME.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set_target_properties(pagedinfer PROPERTIES VERSION ${PI_ABI_VERSION} SOVERSION ${PI_ABI_VERSION})
install(TARGETS pagedinfer LIBRARY DESTINATION pagedinfer/lib NAMELINK_SKIP)
if(TARGET pagedinfer_openai)
    set_target_properties(pagedinfer_openai PROPERTIES VERSION ${PI_ABI_VERSION} SOVERSION ${PI_ABI_VERSION})
    install(TARGETS pagedinfer_openai LIBRARY DESTINATION pagedinfer/lib NAMELINK_SKIP)
endif()
if(TARGET pagedinfer_cli)
    set_target_properties(pagedinfer_cli PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
    install(TARGETS pagedinfer_cli RUNTIME DESTINATION pagedinfer/bin)
endif()
set(headers ${PROJECT_SOURCE_DIR}/include/pagedinfer.h ${PROJECT_SOURCE_DIR}/include/pagedinfer_openai.h)
install(FILES ${headers} DESTINATION pagedinfer/include)

set(abi ${PROJECT_BINARY_DIR}/_abi.py)
add_custom_command(OUTPUT ${abi}
                   COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/python/gen_abi.py ${headers} ${abi}
                   DEPENDS ${PROJECT_SOURCE_DIR}/python/gen_abi.py ${headers}
                   COMMENT "Writing _abi.py" VERBATIM)
add_custom_target(pagedinfer_abi ALL DEPENDS ${abi})
install(FILES ${abi} DESTINATION pagedinfer)
