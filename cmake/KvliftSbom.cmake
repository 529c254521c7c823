# kvlift_sbom(FILE) writes a CycloneDX document of what the program consists of. Versions are those
# of the packages that were found. The last argument of a component has the prefixes of the names of
# its shared libraries.
function(kvlift_sbom FILE)
  set(components)
  set(references)
  macro(component name version licence libraries)
    set(reference "pkg:generic/${name}@${version}")
    set(properties)
    foreach(library ${libraries})
      list(APPEND properties "{\"name\": \"kvlift:shared-library\", \"value\": \"${library}\"}")
    endforeach()
    list(JOIN properties ", " properties)
    list(APPEND components "
    {
      \"type\": \"library\",
      \"bom-ref\": \"${reference}\",
      \"name\": \"${name}\",
      \"version\": \"${version}\",
      \"purl\": \"${reference}\",
      \"licenses\": [${licence}],
      \"properties\": [${properties}]
    }")
    list(APPEND references "\"${reference}\"")
  endmacro()
  macro(linked name version licence libraries)
    component(${name} "${version}" "{\"license\": {\"id\": \"${licence}\"}}" "${libraries}")
  endmacro()

  linked(onnx "${ONNX_VERSION}" Apache-2.0 "")
  linked(protobuf "${Protobuf_VERSION}" BSD-3-Clause libprotobuf.so)
  linked(abseil-cpp "${absl_VERSION}" Apache-2.0 libabsl_)
  linked(fmt "${fmt_VERSION}" MIT libfmt.so)
  linked(cli11 "${CLI11_VERSION}" BSD-3-Clause "")
  linked(nlohmann-json "${nlohmann_json_VERSION}" MIT "")
  linked(openssl "${OPENSSL_VERSION}" Apache-2.0 libcrypto.so)
  linked(utf8proc "${utf8proc_VERSION}" MIT libutf8proc.so)
  foreach(library libstdc++.so libgcc_s.so libgomp.so)
    string(REGEX REPLACE "\\.so$" "" name ${library})
    component(${name} "${CMAKE_CXX_COMPILER_VERSION}"
              "{\"license\": {\"name\": \"GPL-3.0 with GCC exception\"}}" ${library})
  endforeach()
  execute_process(COMMAND ldd --version OUTPUT_VARIABLE glibc ERROR_QUIET)
  string(REGEX MATCH "[0-9]+\\.[0-9]+" glibc "${glibc}")
  linked(glibc "${glibc}" LGPL-2.1-or-later "libc.so;libm.so;ld-linux")

  list(JOIN components "," components)
  list(JOIN references ", " references)
  set(self "pkg:generic/kvlift@${PROJECT_VERSION}")
  file(CONFIGURE OUTPUT ${FILE} @ONLY CONTENT "{
  \"bomFormat\": \"CycloneDX\",
  \"specVersion\": \"1.6\",
  \"version\": 1,
  \"metadata\": {
    \"component\": {
      \"type\": \"application\",
      \"bom-ref\": \"${self}\",
      \"name\": \"kvlift\",
      \"version\": \"${PROJECT_VERSION}\",
      \"purl\": \"${self}\",
      \"licenses\": [{\"license\": {\"id\": \"Apache-2.0\"}}]
    }
  },
  \"components\": [${components}
  ],
  \"dependencies\": [
    {\"ref\": \"${self}\", \"dependsOn\": [${references}]}
  ]
}
")
endfunction()
