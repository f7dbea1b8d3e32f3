# cmake --install: the program, the configs and the launch scripts. The program does not need the source tree.
include(GNUInstallDirs)
install(TARGETS hadal RUNTIME)
install(TARGETS hadal_mpi LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/hadal")
set_target_properties(hadal PROPERTIES INSTALL_RPATH "$ORIGIN;$ORIGIN/../${CMAKE_INSTALL_LIBDIR}/hadal")
install(DIRECTORY configs/ DESTINATION "${CMAKE_INSTALL_DATADIR}/hadal/configs" USE_SOURCE_PERMISSIONS
  FILES_MATCHING PATTERN "*.textproto" PATTERN "run.proto" PATTERN "*.py" PATTERN "README.md")
install(DIRECTORY launch/slurm launch/hosts DESTINATION "${CMAKE_INSTALL_DATADIR}/hadal/launch" USE_SOURCE_PERMISSIONS)
if(NOT SKBUILD)  # a wheel's are packages of site-packages
  install(DIRECTORY tools/python/ DESTINATION "${CMAKE_INSTALL_DATADIR}/hadal/python" FILES_MATCHING PATTERN "*.py" PATTERN "py.typed" PATTERN "*.html" PATTERN "pyproject.toml")
endif()
install(FILES launch/completion.bash DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" RENAME hadal)
install(FILES README.md LICENSE CHANGELOG.md DESTINATION "${CMAKE_INSTALL_DOCDIR}")
if(HADAL_FETCH_DEPENDENCIES)  # the only shared library (HadalFetch.cmake)
  install(TARGETS sentencepiece sentencepiece_train LIBRARY)
  set_property(TARGET hadal APPEND PROPERTY INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
endif()
