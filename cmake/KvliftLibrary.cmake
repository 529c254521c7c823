option(KVLIFT_UNITY "Compile the files of a folder in batches, which is quicker as a whole" OFF)

# Lets KVLIFT_UNITY join the files of a target, whose names in anonymous namespaces must differ.
# Files with compiler flags of their own stay alone, and so do those that match a pattern in ALONE.
function(kvlift_unity TARGET)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "ALONE")
  set_target_properties(${TARGET} PROPERTIES
    UNITY_BUILD ${KVLIFT_UNITY} UNITY_BUILD_BATCH_SIZE 100)
  get_target_property(srcs ${TARGET} SOURCES)
  foreach(pattern IN LISTS arg_ALONE)
    set(alone ${srcs})
    list(FILTER alone INCLUDE REGEX "${pattern}")
    set_source_files_properties(${alone} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endforeach()
endfunction()

# kvlift_library(NAME BRIEF SRCS... HDRS... DEPS... ALONE... PLAIN...) defines target kvlift_NAME.
# DEPS are targets. A library without source files becomes an INTERFACE library. Files named
# *_avx2.cc, *_avx512.cc and *_vnni.cc are compiled for that instruction set and left out on other
# processors; their functions are called by dispatch at run time only. BRIEF: with less optimisation
# (kvlift_brief), where no time is spent. PLAIN: patterns of the files that are compiled so while the
# others are not, by the target kvlift_NAME_plain. ALONE: as for kvlift_unity.
function(kvlift_library NAME)
  cmake_parse_arguments(PARSE_ARGV 1 arg "NO_PCH;BRIEF" "" "SRCS;HDRS;DEPS;ALONE;PLAIN")
  set(target kvlift_${NAME})
  kvlift_select_isa(arg_SRCS)
  set(deps kvlift_deps ${arg_DEPS})
  if(arg_PLAIN)
    list(JOIN arg_PLAIN "|" pattern)
    set(plain ${arg_SRCS})
    list(FILTER plain INCLUDE REGEX "${pattern}")
    list(FILTER arg_SRCS EXCLUDE REGEX "${pattern}")
    add_library(${target}_plain OBJECT ${plain})
    target_include_directories(${target}_plain PRIVATE ${CMAKE_SOURCE_DIR}/lib)
    target_link_libraries(${target}_plain PRIVATE kvlift_strict kvlift_brief ${deps})
    kvlift_unity(${target}_plain)
    list(APPEND arg_SRCS $<TARGET_OBJECTS:${target}_plain>)
  endif()
  if(arg_SRCS)
    add_library(${target} STATIC ${arg_SRCS})
    set(scope PUBLIC)
    if(NOT arg_NO_PCH)
      target_precompile_headers(${target} REUSE_FROM kvlift_pch)
    endif()
    target_link_libraries(${target} PRIVATE kvlift_strict)
    if(arg_BRIEF)
      target_link_libraries(${target} PRIVATE kvlift_brief)
    endif()
    kvlift_unity(${target} ALONE ${arg_ALONE})
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_sources(${target} ${scope} FILE_SET HEADERS BASE_DIRS ${CMAKE_SOURCE_DIR}/lib
                                    FILES ${arg_HDRS})
  target_include_directories(${target} ${scope} $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/lib>)
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${NAME})
  set_property(GLOBAL APPEND PROPERTY KVLIFT_LIBRARIES ${target})
  target_link_libraries(${target} ${scope} ${deps})
endfunction()

option(KVLIFT_HOST_ISA "Leave out kernels for instruction sets that this machine does not have" OFF)

# The macros that the compiler predefines for the instruction sets of this machine, or those of all
# sets that have kernels.
set(KVLIFT_ISA_MACROS __AVX2__ __AVX512F__ __AVX512VNNI__)
if(KVLIFT_HOST_ISA)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -march=native -dM -E -x c++ /dev/null
                  OUTPUT_VARIABLE KVLIFT_ISA_MACROS ERROR_QUIET)
endif()

# Sets the compiler flags of the sources that are written for one instruction set. Removes them from
# the list VARIABLE on other processors. A file that is compiled without its flags offers no kernel.
function(kvlift_select_isa VARIABLE)
  set(avx2 -mavx2 -mfma -mf16c)
  set(avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c)
  set(vnni ${avx512} -mavx512vnni)
  set(avx2_macro __AVX2__)
  set(avx512_macro __AVX512F__)
  set(vnni_macro __AVX512VNNI__)
  set(kept)
  foreach(src IN LISTS ${VARIABLE})
    if(src MATCHES "_(avx2|avx512|vnni)\\.cc$")
      set(flags ${${CMAKE_MATCH_1}})
      set(macro ${${CMAKE_MATCH_1}_macro})
      if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
        continue()
      endif()
      if(NOT "${KVLIFT_ISA_MACROS}" MATCHES "${macro}")
        set(flags)
      endif()
      set_source_files_properties(${src} PROPERTIES COMPILE_OPTIONS "${flags}"
        SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
    list(APPEND kept ${src})
  endforeach()
  set(${VARIABLE} ${kept} PARENT_SCOPE)
endfunction()
