# Third-party libraries. All come from the system, except ONNX if the system has no version that is
# new enough. ONNX then comes from the cache of the user, which `tools/dev setup` fills, and which a
# build of the Python package fills itself.

# kvlift_need(PACKAGE DEBIAN ...) finds a package, or notes the Debian package that has it.
set(missing)
macro(kvlift_need PACKAGE DEBIAN)
  find_package(${PACKAGE} ${ARGN} QUIET)
  if(NOT ${PACKAGE}_FOUND)
    list(APPEND missing ${DEBIAN})
  endif()
endmacro()
kvlift_need(Protobuf libprotobuf-dev)
find_program(KVLIFT_PROTOC protoc)
if(NOT KVLIFT_PROTOC AND NOT Protobuf_PROTOC_EXECUTABLE)
  list(APPEND missing protobuf-compiler)
endif()
kvlift_need(absl libabsl-dev CONFIG)
kvlift_need(fmt libfmt-dev CONFIG)
kvlift_need(CLI11 libcli11-dev CONFIG)
kvlift_need(nlohmann_json nlohmann-json3-dev CONFIG)
kvlift_need(OpenSSL libssl-dev 3.0 COMPONENTS Crypto)
kvlift_need(PkgConfig pkg-config)
if(PkgConfig_FOUND)
  pkg_check_modules(utf8proc IMPORTED_TARGET QUIET libutf8proc)
endif()
if(NOT utf8proc_FOUND)
  list(APPEND missing libutf8proc-dev)
endif()
if(missing)
  list(JOIN missing " " missing)
  message(FATAL_ERROR " kvlift: libraries are missing; on Debian: apt-get install ${missing}")
endif()

execute_process(COMMAND bash ${CMAKE_SOURCE_DIR}/tools/dev.d/paths.sh onnx
                OUTPUT_VARIABLE onnx_cache OUTPUT_STRIP_TRAILING_WHITESPACE
                COMMAND_ERROR_IS_FATAL ANY)
cmake_path(IS_PREFIX onnx_cache "${ONNX_DIR}" onnx_is_current)
if(ONNX_DIR MATCHES "/kvlift/onnx-" AND NOT onnx_is_current)
  unset(ONNX_DIR CACHE)  # built for another compiler or protobuf
endif()
find_package(ONNX 1.23 CONFIG QUIET)
if(NOT ONNX_FOUND AND NOT EXISTS ${onnx_cache}/.complete AND KVLIFT_PYTHON_MODULE)
  # `pip install .` from a clean clone.
  message(STATUS "ONNX 1.23 or newer not found: building it once, which takes some minutes")
  execute_process(COMMAND ${CMAKE_COMMAND} -E env CMAKE=${CMAKE_COMMAND}
                          bash ${CMAKE_SOURCE_DIR}/tools/dev.d/onnx.sh
                  RESULT_VARIABLE onnx_failed OUTPUT_QUIET ERROR_VARIABLE onnx_log)
  if(onnx_failed)
    string(STRIP "${onnx_log}" onnx_log)
    string(REGEX REPLACE "^.*\n" "" onnx_why "${onnx_log}")
    message(STATUS "${onnx_log}")
    message(FATAL_ERROR " kvlift: ONNX 1.23 or newer is missing and was not built: ${onnx_why}")
  endif()
endif()
if(NOT ONNX_FOUND)
  if(NOT EXISTS ${onnx_cache}/.complete)
    message(FATAL_ERROR " kvlift: ONNX 1.23 or newer is missing; run: ./tools/dev setup")
  endif()
  find_package(ONNX 1.23 CONFIG REQUIRED PATHS ${onnx_cache} NO_DEFAULT_PATH)
endif()
message(STATUS "ONNX ${ONNX_VERSION}: ${ONNX_DIR}")

add_library(kvlift_deps INTERFACE)
target_link_libraries(kvlift_deps INTERFACE
  ONNX::onnx ONNX::onnx_proto protobuf::libprotobuf fmt::fmt nlohmann_json::nlohmann_json
  absl::btree absl::flat_hash_map absl::flat_hash_set absl::inlined_vector absl::node_hash_map
  absl::hash absl::span absl::status absl::statusor absl::strings absl::str_format absl::cleanup
  absl::any_invocable absl::function_ref absl::int128 absl::numeric_representation)

# Precompiles headers once for all targets that reuse them with the same flags. Every file still
# includes what it uses, because the build without precompiled headers must work.
#   kvlift_precompile(TARGET HEADERS... LINKS...)   LINKS: targets that the headers belong to
function(kvlift_precompile TARGET)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "HEADERS;LINKS")
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${TARGET}.cc CONTENT "" @ONLY)
  add_library(${TARGET} STATIC ${CMAKE_BINARY_DIR}/${TARGET}.cc)
  target_link_libraries(${TARGET} PRIVATE kvlift_compiler kvlift_deps ${arg_LINKS})
  target_precompile_headers(${TARGET} PRIVATE ${arg_HEADERS})
endfunction()

set(KVLIFT_PCH_HEADERS
  <algorithm> <cstdint> <functional> <map> <memory> <optional> <set> <string> <string_view>
  <utility> <variant> <vector>
  <absl/container/flat_hash_map.h> <absl/container/flat_hash_set.h>
  <absl/container/inlined_vector.h> <absl/status/statusor.h> <absl/strings/str_cat.h>
  <absl/types/span.h> <fmt/format.h> <onnx/onnx_pb.h>)
kvlift_precompile(kvlift_pch HEADERS ${KVLIFT_PCH_HEADERS})
