# kvlift_rules(FOLDER) compiles FOLDER/*.cc into kvlift_rewrites, together with a generated table of
# them. FOLDER/NAME.cc defines `const Rule& NAME()` in namespace kvlift::rewrites. The table is
# sorted by name; kvlift::AllRules() of rewrite/types/rule.h returns it.
function(kvlift_rules FOLDER)
  file(GLOB srcs CONFIGURE_DEPENDS ${FOLDER}/*.cc)
  set(names)
  foreach(src IN LISTS srcs)
    cmake_path(GET src STEM name)
    if(NOT name MATCHES "^[a-z][a-z0-9_]*$")
      message(FATAL_ERROR "${src}: a rule's file name must be a C++ identifier in snake_case")
    endif()
    list(APPEND names ${name})
  endforeach()
  list(SORT names)

  set(table)
  if(EXISTS ${CMAKE_SOURCE_DIR}/lib/rewrite/types/rule.h)
    set(table ${CMAKE_BINARY_DIR}/generated/rewrites_table.cc)
    list(LENGTH names RULE_COUNT)
    set(RULE_DECLARATIONS)
    set(RULE_ENTRIES)
    foreach(name IN LISTS names)
      string(APPEND RULE_DECLARATIONS "const Rule& ${name}();\n")
      string(APPEND RULE_ENTRIES "      &rewrites::${name}(),\n")
    endforeach()
    configure_file(${CMAKE_SOURCE_DIR}/cmake/rewrites_table.cc.in ${table} @ONLY)
  endif()

  kvlift_library(rewrites BRIEF SRCS ${srcs} ${table} DEPS kvlift_rewrite)
  if(table)
    # lib/rewrite calls AllRules() without linking this library. A program that links both gets the
    # table, whatever the order of the two archives.
    target_link_options(kvlift_rewrites INTERFACE LINKER:--undefined=_ZN6kvlift8AllRulesEv)
  endif()
endfunction()
