# What `cmake --install` lays down: the library with its headers, the program, the configurations, the documents, and the files that
# make find_package(invar) work. Run paths are relative, so that the whole tree can be moved.
include(CMakePackageConfigHelpers)

set_target_properties(invar invar_cli PROPERTIES INSTALL_RPATH "$ORIGIN")
install(TARGETS invar invar_cli EXPORT invarTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(NOT BUILD_SHARED_LIBS)
  install(TARGETS invar_flags invar_common_flags EXPORT invarTargets)  # which a static library names
endif()
install(DIRECTORY invar/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/invar
        FILES_MATCHING PATTERN "*.h" PATTERN "*.inc" PATTERN "kernels/cpu" EXCLUDE PATTERN "scene/pango" EXCLUDE PATTERN "dist/mpi" EXCLUDE PATTERN "dist/nccl" EXCLUDE PATTERN "cli" EXCLUDE)
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/invar)
install(EXPORT invarTargets NAMESPACE invar:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/invar)
file(RELATIVE_PATH invar_lib_from_bin /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
set_target_properties(invar_program PROPERTIES INSTALL_RPATH "$ORIGIN/${invar_lib_from_bin}")
install(TARGETS invar_program DESTINATION ${CMAKE_INSTALL_BINDIR})
# The documents as they lie in the source tree, so that their links hold.
install(FILES README.md LICENSE CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs examples DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES tools/pytorch/invar_probe.py DESTINATION ${CMAKE_INSTALL_DOCDIR}/tools/pytorch)
install(PROGRAMS scripts/wandb_upload.py scripts/validate_fp16.sh DESTINATION ${CMAKE_INSTALL_DOCDIR}/scripts)
install(PROGRAMS scripts/slurm/train.sbatch scripts/slurm/train_nodes.sbatch DESTINATION ${CMAKE_INSTALL_DOCDIR}/scripts/slurm)

if(TARGET invar_pango)
  set_target_properties(invar_pango PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS invar_pango LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
foreach(kind ${INVAR_MPI_KINDS})
  if(TARGET invar_${kind})  # MPI itself comes from the machine: it knows its network
    set_target_properties(invar_${kind} PROPERTIES INSTALL_RPATH "$ORIGIN")
    install(TARGETS invar_${kind} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
endforeach()
if(TARGET invar_cuda)
  # CUDA's own libraries come from the machine: beside us, where the toolkit puts them, or where LD_LIBRARY_PATH says.
  set_target_properties(invar_cuda PROPERTIES INSTALL_RPATH "$ORIGIN:/usr/local/cuda/lib64:/usr/local/cuda/lib")
  install(TARGETS invar_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

if(TARGET invar_nccl)
  set_target_properties(invar_nccl PROPERTIES INSTALL_RPATH "$ORIGIN:/usr/local/cuda/lib64:/usr/local/cuda/lib")
  install(TARGETS invar_nccl LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

configure_package_config_file(cmake/invarConfig.cmake.in ${CMAKE_BINARY_DIR}/invarConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/invar)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/invarConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/invarConfig.cmake ${CMAKE_BINARY_DIR}/invarConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/invar)
include(cmake/package.cmake)
