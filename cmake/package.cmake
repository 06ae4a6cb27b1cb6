# `cpack -G TGZ`: one folder that runs on a machine without our packages. Beside what is installed it holds copies of the
# libraries such a machine would miss, and the tests and benchmarks that want its GPU (scripts/gpu-test.sh).
set(bundle_libexec ${CMAKE_INSTALL_LIBEXECDIR}/invar)
file(RELATIVE_PATH lib_from_libexec /${bundle_libexec} /${CMAKE_INSTALL_LIBDIR})
foreach(program test_gpu nccl_stand_in gpu_kernels gpu_attention own_convnet own_gpt)
  if(TARGET ${program})
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/${lib_from_libexec}")
    install(TARGETS ${program} RUNTIME DESTINATION ${bundle_libexec} LIBRARY DESTINATION ${bundle_libexec} COMPONENT bundle EXCLUDE_FROM_ALL)
  endif()
endforeach()
install(PROGRAMS scripts/gpu-test.sh DESTINATION ${bundle_libexec} COMPONENT bundle EXCLUDE_FROM_ALL)
install(CODE "set(bundled_library $<TARGET_FILE:invar>)\nset(bundle_to ${CMAKE_INSTALL_LIBDIR})" COMPONENT bundle EXCLUDE_FROM_ALL)
install(CODE [[
  file(GET_RUNTIME_DEPENDENCIES LIBRARIES ${bundled_library} RESOLVED_DEPENDENCIES_VAR found UNRESOLVED_DEPENDENCIES_VAR missing
       POST_INCLUDE_REGEXES "/lib(dnnl|yaml-cpp|fmt|gomp|tbb|OpenCL|pcre2|utf8proc|jpeg|png|webp|polyclipping|freetype|brotli)[^/]*$" POST_EXCLUDE_REGEXES ".*")
  foreach(library ${found})
    file(INSTALL DESTINATION "${CMAKE_INSTALL_PREFIX}/${bundle_to}" TYPE SHARED_LIBRARY FOLLOW_SYMLINK_CHAIN FILES ${library})
  endforeach()
]] COMPONENT bundle EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_VENDOR Invar)
set(CPACK_PACKAGE_FILE_NAME invar-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_CMAKE_PROJECTS "${CMAKE_BINARY_DIR};invar;ALL;/" "${CMAKE_BINARY_DIR};invar;bundle;/")
include(CPack)
