# `cmake --install`: library, header, pkg-config file, CMake package, tool, man page, completions, licence. All paths
# between them are relative, so an installed tree can be moved. The target uninstall removes it again.
include(CMakePackageConfigHelpers)

set(PI_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/PagedInfer)
set(targets pagedinfer)
if(PAGEDINFER_STATIC)
    list(APPEND targets pagedinfer_static)
endif()
install(TARGETS ${targets} EXPORT PagedInferTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET pagedinfer_openai)
    install(TARGETS pagedinfer_openai EXPORT PagedInferTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(FILES ${PROJECT_SOURCE_DIR}/include/pagedinfer_openai.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
if(TARGET pagedinfer_mpi) # the library loads the plug-in from its own folder
    install(TARGETS pagedinfer_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(FILES ${PROJECT_SOURCE_DIR}/include/pagedinfer.h ${PROJECT_SOURCE_DIR}/include/pagedinfer.hpp
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(EXPORT PagedInferTargets NAMESPACE PagedInfer:: DESTINATION ${PI_PACKAGE_DIR})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/PagedInferConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/PagedInferConfig.cmake INSTALL_DESTINATION ${PI_PACKAGE_DIR})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/PagedInferConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/PagedInferConfig.cmake ${PROJECT_BINARY_DIR}/PagedInferConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/PagedInferDependency.cmake DESTINATION ${PI_PACKAGE_DIR})

# pcfiledir is the folder of the .pc file, so the prefix moves with the tree.
file(RELATIVE_PATH PI_PC_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" PI_PC_PREFIX "${PI_PC_PREFIX}")
foreach(dir LIBDIR INCLUDEDIR)
    if(IS_ABSOLUTE "${CMAKE_INSTALL_${dir}}")
        set(PI_PC_${dir} "${CMAKE_INSTALL_${dir}}")
    else()
        set(PI_PC_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
    endif()
endforeach()
configure_file(${PROJECT_SOURCE_DIR}/cmake/pagedinfer.pc.in ${PROJECT_BINARY_DIR}/pagedinfer.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/pagedinfer.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(TARGET pagedinfer_openai)
    configure_file(${PROJECT_SOURCE_DIR}/cmake/pagedinfer-openai.pc.in ${PROJECT_BINARY_DIR}/pagedinfer-openai.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/pagedinfer-openai.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()

if(TARGET pagedinfer_cli)
    install(TARGETS pagedinfer_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
    # Links with the names of llama.cpp's tools, for existing scripts. Called by such a name, the tool runs the
    # matching subcommand (table in tools/main.c). Off by default, because llama.cpp itself may be installed there.
    option(PAGEDINFER_LLAMA_NAMES "Install links to the tool under the names of llama.cpp's tools" OFF)
    if(PAGEDINFER_LLAMA_NAMES)
        set(names cli completion bench batched-bench perplexity quantize imatrix tokenize embedding)
        if(PI_HAVE_SERVER)
            list(APPEND names server)
        endif()
        file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/llama-names)
        # The links below point to `pagedinfer` in their own folder, so the build's folder needs one too.
        file(CREATE_LINK ../pagedinfer ${PROJECT_BINARY_DIR}/llama-names/pagedinfer SYMBOLIC)
        foreach(name ${names})
            file(CREATE_LINK pagedinfer ${PROJECT_BINARY_DIR}/llama-names/llama-${name} SYMBOLIC)
            install(FILES ${PROJECT_BINARY_DIR}/llama-names/llama-${name} DESTINATION ${CMAKE_INSTALL_BINDIR})
        endforeach()
    endif()
endif()

# The server as a systemd service; its options are in /etc.
if(TARGET pagedinfer_cli)
    set(PAGEDINFER_SYSTEMD_DIR lib/systemd/system CACHE STRING "Folder of systemd units, relative to the prefix")
    # The unit names the program by its full path, which depends on the prefix of the installation.
    install(CODE "set(bindir \"${CMAKE_INSTALL_BINDIR}\")
        set(PAGEDINFER_BINDIR \"\${CMAKE_INSTALL_PREFIX}/\${bindir}\")
        if(IS_ABSOLUTE \"\${bindir}\")
            set(PAGEDINFER_BINDIR \"\${bindir}\")
        endif()
        get_filename_component(PAGEDINFER_BINDIR \"\${PAGEDINFER_BINDIR}\" ABSOLUTE)
        configure_file(\"${PROJECT_SOURCE_DIR}/packaging/pagedinfer.service.in\"
                       \"${PROJECT_BINARY_DIR}/pagedinfer.service\" @ONLY)")
    install(FILES ${PROJECT_BINARY_DIR}/pagedinfer.service ${PROJECT_SOURCE_DIR}/packaging/pagedinfer.socket
            DESTINATION ${PAGEDINFER_SYSTEMD_DIR})
    install(FILES ${PROJECT_SOURCE_DIR}/packaging/sysusers.conf DESTINATION lib/sysusers.d RENAME pagedinfer.conf)
    set(examples pagedinfer-gpu.conf pagedinfer.conf models.ini grafana-dashboard.json prometheus-rules.yml)
    list(TRANSFORM examples PREPEND ${PROJECT_SOURCE_DIR}/packaging/)
    install(FILES ${examples} DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)
    if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
        install(FILES ${PROJECT_SOURCE_DIR}/packaging/pagedinfer.conf DESTINATION /etc/pagedinfer)
    endif()
endif()

if(NOT TARGET uninstall)
    add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -DMANIFEST=${CMAKE_BINARY_DIR}/install_manifest.txt
                                        -P ${PROJECT_SOURCE_DIR}/cmake/PagedInferUninstall.cmake
                      COMMENT "Removing the installed files" VERBATIM)
endif()

# Man pages and completions come from the tables of options and the tool's help texts, by a small program that runs
# during the build.
if(TARGET pagedinfer_cli AND NOT PAGEDINFER_SANITIZE AND (NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR))
    add_executable(pagedinfer_gen_docs ${PROJECT_SOURCE_DIR}/tools/gen/gen_docs.c ${PROJECT_SOURCE_DIR}/tools/options.c)
    target_compile_definitions(pagedinfer_gen_docs PRIVATE _GNU_SOURCE)
    target_include_directories(pagedinfer_gen_docs PRIVATE ${PROJECT_SOURCE_DIR}/tools)
    target_link_libraries(pagedinfer_gen_docs PRIVATE pagedinfer pi_flags)
    set(docs "")
    set(doc_dir ${PROJECT_BINARY_DIR}/docs)
    macro(pi_doc file destination) # the rest: arguments of gen_docs; inputs are in doc_dir/help
        get_filename_component(folder ${doc_dir}/${file} DIRECTORY)
        add_custom_command(OUTPUT ${doc_dir}/${file}
                           COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}
                           COMMAND pagedinfer_gen_docs ${ARGN} > ${doc_dir}/${file}
                           DEPENDS pagedinfer_gen_docs pagedinfer ${helps} COMMENT "Writing docs/${file}" VERBATIM)
        list(APPEND docs ${doc_dir}/${file})
        install(FILES ${doc_dir}/${file} DESTINATION ${destination})
    endmacro()
    set(helps "")
    macro(pi_help file) # the rest: arguments of the tool
        add_custom_command(OUTPUT ${doc_dir}/help/${file}
                           COMMAND ${CMAKE_COMMAND} -E make_directory ${doc_dir}/help
                           COMMAND pagedinfer_cli ${ARGN} > ${doc_dir}/help/${file}
                           DEPENDS pagedinfer_cli VERBATIM)
        list(APPEND helps ${doc_dir}/help/${file})
    endmacro()
    set(commands run chat serve bench eval embed quantize imatrix inspect tokenize pull list rm weights selftest)
    pi_help(overview.txt help)
    foreach(command ${commands})
        pi_help(${command}.txt ${command} --help all)
    endforeach()
    pi_doc(man/pagedinfer.1 ${CMAKE_INSTALL_MANDIR}/man1 man ${doc_dir}/help/overview.txt)
    foreach(command ${commands})
        pi_doc(man/pagedinfer-${command}.1 ${CMAKE_INSTALL_MANDIR}/man1
               command ${doc_dir}/help/overview.txt ${doc_dir}/help/${command}.txt)
    endforeach()
    pi_doc(man/pagedinfer-options.7 ${CMAKE_INSTALL_MANDIR}/man7 options-man)
    pi_doc(bash/pagedinfer ${CMAKE_INSTALL_DATADIR}/bash-completion/completions bash ${doc_dir}/help/overview.txt)
    pi_doc(zsh/_pagedinfer ${CMAKE_INSTALL_DATADIR}/zsh/site-functions zsh ${doc_dir}/help/overview.txt)
    pi_doc(fish/pagedinfer.fish ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d fish ${doc_dir}/help/overview.txt)
    add_custom_target(pagedinfer_docs ALL DEPENDS ${docs})
endif()

# Man pages of section 3 come from the header, by a script. Without Python they are not installed.
find_package(Python3 QUIET COMPONENTS Interpreter)
if(Python3_Interpreter_FOUND)
    set(gen_man3 ${PROJECT_SOURCE_DIR}/tools/gen/gen_man3.py)
    set(header ${PROJECT_SOURCE_DIR}/include/pagedinfer.h)
    if(TARGET pagedinfer_openai)
        list(APPEND header ${PROJECT_SOURCE_DIR}/include/pagedinfer_openai.h)
    endif()
    set(man3 ${PROJECT_BINARY_DIR}/docs/man3)
    add_custom_command(OUTPUT ${man3}/pagedinfer.3
                       COMMAND ${Python3_EXECUTABLE} ${gen_man3} ${header} --man ${man3}
                       DEPENDS ${gen_man3} ${header} COMMENT "Writing docs/man3" VERBATIM)
    add_custom_target(pagedinfer_man3 ALL DEPENDS ${man3}/pagedinfer.3)
    install(DIRECTORY ${man3} DESTINATION ${CMAKE_INSTALL_MANDIR})
endif()
