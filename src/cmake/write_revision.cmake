# cmake -DSOURCE=CHECKOUT -DOUTPUT=FILE -P write_revision.cmake: writes the git commit of the checkout to a file, with "-dirty" if files
# differ from it. Writes "unknown" for a source archive without git.
find_program(GIT git)
set(revision "")
if(GIT)
  execute_process(
    COMMAND ${GIT} -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
    OUTPUT_VARIABLE revision
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT revision)
  set(revision unknown)
endif()
file(WRITE ${OUTPUT} "${revision}\n")
