# Language, build type, warnings, sanitizers, ccache, clang-tidy: what every target of ours gets.

option(KVLIFT_BUILD_TESTS "Build the tests" ON)
option(KVLIFT_WERROR "Treat warnings in our own code as errors" ON)
option(KVLIFT_CLANG_TIDY "Run clang-tidy while compiling" OFF)
set(KVLIFT_SANITIZE "" CACHE STRING "Sanitizers for our own code, e.g. address,undefined")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1 -fno-omit-frame-pointer")

if(NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(KVLIFT_CCACHE ccache)
  if(KVLIFT_CCACHE)
    # Several build trees of one checkout share the cache; the precompiled header needs the sloppiness.
    set(CMAKE_CXX_COMPILER_LAUNCHER
        ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
        CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
        ${KVLIFT_CCACHE})
  endif()
endif()

# The flags of every target of ours. Dependencies come as SYSTEM and are not held to them.
add_library(kvlift_flags INTERFACE)
target_include_directories(kvlift_flags INTERFACE ${CMAKE_SOURCE_DIR}/lib)
target_compile_options(
  kvlift_flags
  INTERFACE -Wall
            -Wextra
            -Wshadow
            -Wnon-virtual-dtor
            -Woverloaded-virtual
            -Wfloat-conversion
            $<$<BOOL:${KVLIFT_WERROR}>:-Werror>
            # A result must not depend on which product the compiler fuses into which sum.
            -ffp-contract=off
            $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)

if(KVLIFT_SANITIZE)
  target_compile_options(kvlift_flags INTERFACE -fsanitize=${KVLIFT_SANITIZE}
                                                -fno-sanitize-recover=all)
  target_compile_definitions(kvlift_flags INTERFACE _GLIBCXX_ASSERTIONS)
  target_link_options(kvlift_flags INTERFACE -fsanitize=${KVLIFT_SANITIZE})
endif()

if(KVLIFT_CLANG_TIDY)
  find_program(KVLIFT_CLANG_TIDY_EXE NAMES clang-tidy REQUIRED)
  set(CMAKE_CXX_CLANG_TIDY ${KVLIFT_CLANG_TIDY_EXE} --quiet)
endif()
