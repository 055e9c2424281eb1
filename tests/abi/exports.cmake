# A back end exports tsr_backend_entry and nothing else.
execute_process(COMMAND ${NM} -D --defined-only ${LIBRARY} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE "[^\n]* T tsr_backend_entry\n" "" others "${symbols}")
if(others STREQUAL symbols)
  message(FATAL_ERROR "tsr_backend_entry is not exported:\n${symbols}")
endif()
if(NOT others STREQUAL "")
  message(FATAL_ERROR "Exported, but must not be:\n${others}")
endif()
