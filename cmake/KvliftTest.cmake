# kvlift_test(NAME LIBS...)   GoogleTest executable from tests/NAME.cc, one ctest per case.
# kvlift_pytest(NAME)         ctest that runs tests/NAME.py under the Python of the test venv, with
#                             KVLIFT (the binary), KVLIFT_SOURCE_DIR and KVLIFT_TESTDATA_DIR set.
# LIBS as DEPS of kvlift_library. Both kinds find the bundled data in KVLIFT_TESTDATA_DIR.

if(KVLIFT_BUILD_TESTS)
  find_package(GTest CONFIG REQUIRED)
  include(GoogleTest)
  execute_process(
    COMMAND bash ${CMAKE_SOURCE_DIR}/tools/dev.d/paths.sh venv
    OUTPUT_VARIABLE kvlift_venv
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(EXISTS ${kvlift_venv}/.complete)
    set(KVLIFT_PYTHON ${kvlift_venv}/bin/python)
  else()
    find_program(KVLIFT_PYTHON3 python3 REQUIRED)
    set(KVLIFT_PYTHON ${KVLIFT_PYTHON3})
    message(STATUS "No test venv: Python tests may fail. Run: ./tools/dev setup")
  endif()
endif()

function(kvlift_test NAME)
  kvlift_targets(libs ${ARGN})
  add_executable(${NAME} ${NAME}.cc)
  target_include_directories(${NAME} PRIVATE ${CMAKE_SOURCE_DIR}/tools ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_definitions(
    ${NAME} PRIVATE KVLIFT_TESTDATA_DIR="${CMAKE_SOURCE_DIR}/testdata"
                    KVLIFT_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_link_libraries(${NAME} PRIVATE ${libs} kvlift_flags GTest::gmock GTest::gtest_main)
  if(libs MATCHES "kvlift_(ir|onnxio|contract|lint|sym|rewrite|rewrites|exec|verify|cli)")
    kvlift_use_pch(${NAME})
  endif()
  gtest_discover_tests(${NAME} DISCOVERY_MODE PRE_TEST PROPERTIES LABELS cpp)
endfunction()

function(kvlift_pytest NAME)
  add_test(NAME ${NAME} COMMAND ${KVLIFT_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/${NAME}.py)
  set(env KVLIFT_SOURCE_DIR=${CMAKE_SOURCE_DIR} KVLIFT_TESTDATA_DIR=${CMAKE_SOURCE_DIR}/testdata
          PYTHONDONTWRITEBYTECODE=1)
  if(TARGET kvlift)
    list(APPEND env "KVLIFT=$<TARGET_FILE:kvlift>")
  endif()
  set_tests_properties(${NAME} PROPERTIES LABELS python ENVIRONMENT "${env}"
                                          SKIP_RETURN_CODE 77)
endfunction()
