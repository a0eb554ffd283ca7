# trireme_add_test(unit/layering/layering_test [LINKS trireme::core ...] [LABELS unit ...] [MPI_RANKS 1 2 ...] [TIMEOUT s] [PROCESSORS n]
#                  [FILTER -Suite.WhatAnotherRegistrationRuns])
# Builds the GoogleTest program of the file tests/<path>.cpp and adds a test with the name <path>. With MPI_RANKS, the program runs
# under mpirun once for each number of ranks (label mpi), with a hard time limit. Otherwise it runs once, without mpirun.
#
# trireme_add_tests(unit/core FILES error json ... [THREADS error ...] [the other arguments of trireme_add_test])
# Builds one program, unit_core_tests, of tests/unit/core/{error,json,...}_test.cpp, and adds a test unit/core/error_test for each file.
# The files are compiled a few at a time, so the names in one directory must differ. THREADS names the files with tests of code in
# several threads: a build with the thread sanitizer compiles only these.
find_package(GTest QUIET)
if(NOT GTest_FOUND)
  trireme_missing("GoogleTest" libgtest-dev CMAKE_PREFIX_PATH)
endif()

# Tests are compiled without optimization, which takes a fifth less time; the libraries that they test keep the flags of the build.
# The thread sanitizer makes such code too slow. A precompiled header fits one level of optimization only, so tests have their own.
set(TRIREME_TEST_OPTIMIZATION -O0)
if(TRIREME_SANITIZE MATCHES thread)
  set(TRIREME_TEST_OPTIMIZATION "")
endif()
trireme_add_pch(
  trireme_test_pch
  HEADERS <gtest/gtest.h> ${TRIREME_COMMON_HEADERS}
  LINKS trireme_dep_json GTest::gtest
  OPTIONS ${TRIREME_TEST_OPTIMIZATION})
set_target_properties(trireme_test_pch PROPERTIES TRIREME_IS_TEST ON)
if(TRIREME_WITH_TORCH)
  trireme_add_pch(
    trireme_torch_test_pch
    HEADERS <gtest/gtest.h> ${TRIREME_TORCH_HEADERS}
    LINKS trireme_dep_torch trireme_dep_json GTest::gtest
    OPTIONS -fPIC ${TRIREME_TEST_OPTIMIZATION})
  set_target_properties(trireme_torch_test_pch PROPERTIES TRIREME_IS_TEST ON)
endif()

# MPI plugins leak memory in libraries that are unloaded before the leak check can name them.
set(TRIREME_MPI_ASAN ASAN_OPTIONS=detect_leaks=0)

# Gives a program or library of the tests its flags, directories and GoogleTest. TORCH: 1 if its files include LibTorch, otherwise "".
function(trireme_test_program target torch)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests TRIREME_IS_TEST ON)
  target_compile_options(${target} PRIVATE ${TRIREME_TEST_OPTIMIZATION})
  target_link_libraries(${target} PRIVATE trireme_flags GTest::gtest)
  if(torch)
    trireme_use_torch_pch(${target} trireme_torch_test_pch)
  else()
    trireme_use_pch(${target} trireme_test_pch)
  endif()
endfunction()

# Sets the properties of a test that runs without mpirun.
function(trireme_test_properties name labels timeout processors)
  set_tests_properties(${name} PROPERTIES LABELS "${labels}" TIMEOUT ${timeout} ENVIRONMENT OMP_NUM_THREADS=1)
  if("integration" IN_LIST labels)  # the test runs the real programs, which start MPI
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "OMP_NUM_THREADS=1;${TRIREME_MPI_ASAN}")
  endif()
  if(processors)
    set_tests_properties(${name} PROPERTIES PROCESSORS ${processors})
  endif()
endfunction()

function(trireme_add_tests folder)
  cmake_parse_arguments(ARG "TORCH" "TIMEOUT;PROCESSORS" "FILES;THREADS;LINKS;LABELS;SOURCES" ${ARGN})
  if(TRIREME_SANITIZE MATCHES thread)
    set(ARG_FILES ${ARG_THREADS})
  endif()
  string(REPLACE "/" "_" target ${folder}_tests)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  list(TRANSFORM ARG_FILES PREPEND ${CMAKE_SOURCE_DIR}/tests/${folder}/ OUTPUT_VARIABLE files)
  list(TRANSFORM files APPEND _test.cpp)
  set(alone ${ARG_SOURCES} ${CMAKE_SOURCE_DIR}/tests/support/test_main.cpp)
  add_executable(${target} ${files} ${alone})
  trireme_compile_together(${target})
  set_source_files_properties(${alone} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  target_link_libraries(${target} PRIVATE ${ARG_LINKS})
  trireme_test_program(${target} "${ARG_TORCH}")
  foreach(name ${ARG_FILES})
    add_test(NAME ${folder}/${name}_test COMMAND ${target} ${folder}/${name}_test)
    trireme_test_properties(${folder}/${name}_test "${ARG_LABELS}" ${ARG_TIMEOUT} "${ARG_PROCESSORS}")
  endforeach()
endfunction()

function(trireme_add_test path)
  cmake_parse_arguments(ARG "TORCH" "TIMEOUT;PROCESSORS;MAIN;FILTER" "LINKS;LABELS;MPI_RANKS;SOURCES" ${ARGN})
  string(REPLACE "/" "_" target ${path})
  if(NOT ARG_MAIN)
    set(ARG_MAIN GTest::gtest_main)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  add_executable(${target} ${CMAKE_SOURCE_DIR}/tests/${path}.cpp ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE ${ARG_LINKS} ${ARG_MAIN})
  trireme_test_program(${target} "${ARG_TORCH}")
  if(ARG_MPI_RANKS)
    foreach(ranks ${ARG_MPI_RANKS})
      set(name ${path}.${ranks})
      add_test(NAME ${name}
               COMMAND ${CMAKE_COMMAND} -E env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
                       ${TRIREME_MPI_ASAN}
                       ${MPIEXEC_EXECUTABLE} --oversubscribe --bind-to none -n ${ranks} $<TARGET_FILE:${target}>)
      set_tests_properties(${name} PROPERTIES LABELS "mpi;${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} PROCESSORS ${ranks})
    endforeach()
    return()
  endif()
  if(ARG_FILTER)
    add_test(NAME ${path} COMMAND ${target} --gtest_filter=${ARG_FILTER})
  else()
    add_test(NAME ${path} COMMAND ${target})
  endif()
  trireme_test_properties(${path} "${ARG_LABELS}" ${ARG_TIMEOUT} "${ARG_PROCESSORS}")
endfunction()
