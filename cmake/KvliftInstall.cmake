# Says what `cmake --install` and CPack install, and where: the program, its manual page and
# completions (printed by the program itself), and the libraries with a package config for
# `find_package(kvlift)`.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
include(KvliftSbom)

set(generated ${CMAKE_BINARY_DIR}/share)
file(MAKE_DIRECTORY ${generated})
set(files)
foreach(entry "man>kvlift.1" "completion bash>kvlift" "completion zsh>_kvlift"
              "completion fish>kvlift.fish")
  string(REGEX MATCH "(.*)>(.*)" _ "${entry}")
  set(file ${generated}/${CMAKE_MATCH_2})
  separate_arguments(words UNIX_COMMAND "${CMAKE_MATCH_1}")
  add_custom_command(OUTPUT ${file} COMMAND kvlift ${words} > ${file} DEPENDS kvlift VERBATIM)
  list(APPEND files ${file})
endforeach()
add_custom_target(share ALL DEPENDS ${files})

install(TARGETS kvlift RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
install(FILES ${generated}/kvlift.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)
install(FILES ${generated}/kvlift
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT program)
install(FILES ${generated}/_kvlift
        DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT program)
install(FILES ${generated}/kvlift.fish
        DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT program)
kvlift_sbom(${generated}/kvlift.cdx.json)
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE ${generated}/kvlift.cdx.json
        DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)

get_property(libraries GLOBAL PROPERTY KVLIFT_LIBRARIES)
install(TARGETS ${libraries} kvlift_compiler kvlift_strict kvlift_brief kvlift_deps
        EXPORT kvlift
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/kvlift COMPONENT development
        FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/kvlift COMPONENT development)
set(config ${CMAKE_INSTALL_LIBDIR}/cmake/kvlift)
install(EXPORT kvlift NAMESPACE kvlift:: DESTINATION ${config} FILE kvliftTargets.cmake
        COMPONENT development)
# Makes the build folder usable as a package, with the libraries that the Python module links.
export(TARGETS ${libraries} kvlift_compiler kvlift_strict kvlift_brief kvlift_deps kvlift_cli kvlift
       NAMESPACE kvlift:: FILE ${CMAKE_BINARY_DIR}/kvliftTargets.cmake)
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/kvliftConfig.cmake.in
                              ${CMAKE_BINARY_DIR}/kvliftConfig.cmake INSTALL_DESTINATION ${config})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/kvliftConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/kvliftConfig.cmake ${CMAKE_BINARY_DIR}/kvliftConfigVersion.cmake
        DESTINATION ${config} COMPONENT development)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "kvlift developers <kvlift@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "KV caches of ONNX decoders to TensorScatter and Attention")
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME kvlift)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
include(CPack)
