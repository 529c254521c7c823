# Compiler settings of our own code: warnings as errors, sanitizers, ccache.

# "address,undefined", "thread" or empty.
set(KVLIFT_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize=")

set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g -fno-omit-frame-pointer -D_GLIBCXX_ASSERTIONS")

find_program(KVLIFT_CCACHE ccache)
if(KVLIFT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness is what ccache needs to cache users of a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros
      ${KVLIFT_CCACHE})
endif()

# Everything of ours is compiled with this target; nothing of others is. Results must not depend on
# what the compiler contracts for one instruction set and not for another: no implicit FMA.
add_library(kvlift_compiler INTERFACE)
target_compile_options(kvlift_compiler INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror
  -ffp-contract=off
  # Position independent, but nothing here is replaced at load time: calls within a library may be
  # inlined.
  -fno-semantic-interposition
  $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>
  # GCC 12 reports these for inlined std::string and absl containers that are used correctly.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized -Wno-restrict -Wno-array-bounds
                           -Wno-stringop-overflow -Wno-stringop-overread>)

# Of libraries and the tool, not of tests.
add_library(kvlift_strict INTERFACE)
target_compile_options(kvlift_strict INTERFACE -Wconversion -Wno-sign-conversion)
target_link_libraries(kvlift_strict INTERFACE kvlift_compiler)

# Of what spends its time in the libraries, or in processes of its own: a quarter less to compile.
add_library(kvlift_brief INTERFACE)
target_compile_options(kvlift_brief INTERFACE $<$<CONFIG:Release>:-O1>)

if(KVLIFT_SANITIZE)
  # Protobuf and Abseil come uninstrumented, so the vptr check would need RTTI of their classes.
  set(sanitize -fsanitize=${KVLIFT_SANITIZE} -fno-sanitize-recover=all)
  if(KVLIFT_SANITIZE MATCHES undefined)
    list(APPEND sanitize -fno-sanitize=vptr)
  endif()
  target_compile_options(kvlift_compiler INTERFACE ${sanitize})
  target_link_options(kvlift_compiler INTERFACE ${sanitize})
endif()
