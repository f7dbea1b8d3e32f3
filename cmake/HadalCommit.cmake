# Writes OUTPUT, a header with the commit that SOURCE has checked out. A script: cmake -D SOURCE=… -D OUTPUT=… -P
execute_process(COMMAND git -c safe.directory=* -C ${SOURCE} rev-parse --short=12 HEAD
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "unknown: built outside a git clone")
endif()
file(WRITE ${OUTPUT} "#define HADAL_COMMIT \"${commit}\"\n")
