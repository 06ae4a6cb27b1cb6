# The C++ of README.md and docs/ as part of test_docs, made anew when a document or a frame changes; where nvcc is, also as CUDA.
add_executable(docs_extract docs/extract.cpp docs/markdown.cpp)
target_link_libraries(docs_extract PRIVATE ${test_flags})
target_include_directories(docs_extract PRIVATE ${PROJECT_SOURCE_DIR})

file(GLOB_RECURSE documents CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/docs/*.md docs/frames/*)
function(extract_blocks suffix output)
  add_custom_command(OUTPUT ${output} COMMAND docs_extract ${PROJECT_SOURCE_DIR} ${suffix} ${output}
                     DEPENDS docs_extract ${documents} VERBATIM)
endfunction()

extract_blocks(.cpp ${CMAKE_CURRENT_BINARY_DIR}/doc_blocks.cpp)
target_sources(test_docs PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/doc_blocks.cpp)
target_compile_definitions(test_docs PRIVATE INVAR_CMAKE="${CMAKE_COMMAND}")
if(TARGET invar_cuda)
  target_compile_definitions(test_docs PRIVATE INVAR_BUILDS_CUDA)
  extract_blocks(.cu ${CMAKE_CURRENT_BINARY_DIR}/doc_blocks.cu)
  add_library(docs_cuda OBJECT ${CMAKE_CURRENT_BINARY_DIR}/doc_blocks.cu)
  target_include_directories(docs_cuda PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(docs_cuda PRIVATE --expt-relaxed-constexpr)
  add_dependencies(test_docs docs_cuda)
endif()
