# What every native target of Tessera shares. Included by path, so that each folder also builds on its own.
include_guard(GLOBAL)

set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

get_property(multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
if(NOT CMAKE_BUILD_TYPE AND NOT multi_config)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

set(TSR_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize= takes them: address,undefined or thread")

get_filename_component(TSR_ROOT ${CMAKE_CURRENT_LIST_DIR}/.. ABSOLUTE)
set(TSR_CONTRACT_INCLUDE ${TSR_ROOT}/packages/core/include)

# Warnings as errors, hidden symbols, sanitizers, and hardening of what is linked.
function(tessera_target target)
  # gcc adds the project's build path to debug info and __FILE__; keep binaries free of it.
  set(options -Wall -Wextra -Werror -ffile-prefix-map=${TSR_ROOT}/=)
  if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    list(APPEND options -fstack-protector-strong)
  endif()
  list(JOIN options "," for_nvcc) # which hands them to the host compiler
  target_compile_options(${target} PRIVATE "$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:${options}>"
                                           "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=${for_nvcc}>")
  set_target_properties(${target} PROPERTIES C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden
                                             VISIBILITY_INLINES_HIDDEN ON)
  if(TSR_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${TSR_SANITIZE} -fno-sanitize-recover=all
                                             -fno-omit-frame-pointer -g)
    target_link_options(${target} PRIVATE -fsanitize=${TSR_SANITIZE})
  endif()
  if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    target_link_options(${target} PRIVATE -Wl,-z,relro,-z,now,-z,noexecstack)
  endif()
endfunction()

# Exports what the map names. Hidden visibility alone leaves templates of the C++ library exported, and those of two
# libraries in one process are then merged.
function(tessera_exports target map)
  if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    target_link_options(${target} PRIVATE -Wl,--version-script=${map})
    set_target_properties(${target} PROPERTIES LINK_DEPENDS ${map})
  endif()
endfunction()

# What ships carries its C++ library with it: it then needs no more of a system than its C library, however old the C++
# library there is, and can't meet another copy's objects. (A sanitizer wants the shared one.) What of it nobody calls goes:
# it is also what would ask for a newer C library (arc4random, glibc 2.36).
function(tessera_portable target)
  if(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND NOT TSR_SANITIZE)
    target_link_options(${target} PRIVATE -static-libstdc++ -Wl,--gc-sections)
  elseif(MINGW)
    target_link_options(${target} PRIVATE -static -Wl,--gc-sections)
  endif()
endfunction()

# A back end's shared library: <folder>/lib/lib<name>.so with tsr_backend_entry as its only symbol.
function(tessera_backend target)
  tessera_target(${target})
  # .so on macOS and Windows too: the loader opens it by that name, and nothing links against it.
  set_target_properties(${target} PROPERTIES PREFIX lib SUFFIX .so)
  if(NOT TSR_SANITIZE AND NOT CMAKE_CROSSCOMPILING) # a build for tests must not replace the one for use
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}/lib)
  endif()
  if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    target_link_options(${target} PRIVATE -Wl,--no-undefined)
  endif()
  tessera_portable(${target})
  tessera_exports(${target} ${TSR_ROOT}/cmake/backend.map)
endfunction()

# One program per file of a tests/ folder, run by ctest with the label given. Arguments after `label` are passed to
# add_test; LINK and INCLUDE name what each program needs. Built by the target `native-tests`, not by default.
function(tessera_tests label)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINK;INCLUDE;ARGS;DEPENDS")
  if(NOT TARGET native-tests)
    add_custom_target(native-tests)
  endif()
  foreach(source IN LISTS arg_SOURCES)
    get_filename_component(name ${source} NAME_WE)
    set(target test-${label}-${name})
    add_executable(${target} EXCLUDE_FROM_ALL ${source})
    tessera_target(${target})
    target_include_directories(${target} PRIVATE ${arg_INCLUDE})
    target_link_libraries(${target} PRIVATE ${arg_LINK} ${CMAKE_DL_LIBS})
    add_dependencies(native-tests ${target} ${arg_DEPENDS})
    add_test(NAME ${label}/${name} COMMAND ${target} ${arg_ARGS})
    set_tests_properties(${label}/${name} PROPERTIES LABELS ${label} TIMEOUT 600 SKIP_RETURN_CODE 77)
  endforeach()
endfunction()

# The back end that programs of tests/ are given: the GPU's of this tree, else the CPU's, also where a folder is built on its own.
macro(tessera_tested_backend variable)
  set(${variable} tessera-cpu)
  foreach(other IN ITEMS tessera-cuda tessera-hip)
    if(TARGET ${other})
      set(${variable} ${other})
    endif()
  endforeach()
  if(NOT TARGET ${${variable}})
    enable_testing()
    add_subdirectory(${TSR_ROOT}/backends/cpu cpu)
  endif()
endmacro()
