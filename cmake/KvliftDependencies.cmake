# Third-party libraries. All come from the system, except ONNX if the system has no version that is
# new enough. ONNX then comes from the per-user cache that `tools/dev setup` fills.

find_package(Protobuf REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(fmt CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(OpenSSL 3.0 REQUIRED COMPONENTS Crypto)
find_package(PkgConfig REQUIRED)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)

execute_process(COMMAND bash ${CMAKE_SOURCE_DIR}/tools/dev.d/paths.sh onnx
                OUTPUT_VARIABLE onnx_cache OUTPUT_STRIP_TRAILING_WHITESPACE
                COMMAND_ERROR_IS_FATAL ANY)
cmake_path(IS_PREFIX onnx_cache "${ONNX_DIR}" onnx_is_current)
if(ONNX_DIR MATCHES "/kvlift/onnx-" AND NOT onnx_is_current)
  unset(ONNX_DIR CACHE)  # built for another compiler or protobuf
endif()
find_package(ONNX 1.23 CONFIG QUIET)
if(NOT ONNX_FOUND)
  if(NOT EXISTS ${onnx_cache}/.complete)
    message(FATAL_ERROR "ONNX 1.23 or newer not found; run: ./tools/dev setup")
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
