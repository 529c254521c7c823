# Compiler settings of this project's code: warnings as errors, sanitizers, ccache.

# "address,undefined", "thread" or empty.
set(KVLIFT_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize=")

set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g -fno-omit-frame-pointer -D_GLIBCXX_ASSERTIONS")

find_program(KVLIFT_CCACHE ccache)
if(KVLIFT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # ccache needs this sloppiness to cache files that use a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros
      ${KVLIFT_CCACHE})
endif()

# All code of this project is compiled with this target, and no code of dependencies. Implicit FMA
# is off, because results must not depend on the instruction set.
add_library(kvlift_compiler INTERFACE)
target_compile_options(kvlift_compiler INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror
  -ffp-contract=off
  # The code is position independent, but no function is replaced at load time, so calls within a
  # library may be inlined.
  -fno-semantic-interposition
  $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>
  # GCC collects its garbage from here on, in kB; earlier, that takes a tenth of the compile time.
  "$<$<CXX_COMPILER_ID:GNU>:SHELL:--param ggc-min-heapsize=1000000>"
  # GCC 12 reports these for inlined std::string and absl containers that are used correctly.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized -Wno-restrict -Wno-array-bounds
                           -Wno-stringop-overflow -Wno-stringop-overread>)

# More warnings for the libraries and the tool, but not for tests.
add_library(kvlift_strict INTERFACE)
target_compile_options(kvlift_strict INTERFACE -Wconversion -Wno-sign-conversion)
target_link_libraries(kvlift_strict INTERFACE kvlift_compiler)

# Less optimisation for code that spends its time in other libraries or processes. It saves a third
# of the compile time; a conversion takes some 6 % longer.
add_library(kvlift_brief INTERFACE)
target_compile_options(kvlift_brief INTERFACE $<$<CONFIG:Release>:-Og>)

if(KVLIFT_SANITIZE)
  # Protobuf and Abseil come uninstrumented, so the vptr check would need RTTI of their classes.
  set(sanitize -fsanitize=${KVLIFT_SANITIZE} -fno-sanitize-recover=all)
  if(KVLIFT_SANITIZE MATCHES undefined)
    list(APPEND sanitize -fno-sanitize=vptr)
  endif()
  target_compile_options(kvlift_compiler INTERFACE ${sanitize})
  target_link_options(kvlift_compiler INTERFACE ${sanitize})
endif()
