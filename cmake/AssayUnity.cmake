# With ASSAY_UNITY the sources of one folder are compiled as one: what they include and instantiate is
# then compiled once for the folder: CI went from 28 to 17 minutes. The names in their anonymous
# namespaces must therefore differ.
# Kernels stay alone: each sets its own instruction sets, and they are what a build waits for.
function(assay_unite target)
  if(NOT ASSAY_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  foreach(source IN LISTS ARGN)
    file(STRINGS "${source}" kernel_line LIMIT_COUNT 1
         REGEX "hwy/(foreach_target|highway)|avx512|amx_tiles")
    if(NOT kernel_line)
      get_filename_component(folder "${source}" DIRECTORY)
      get_filename_component(folder "${folder}" NAME)
      set_source_files_properties("${source}" PROPERTIES UNITY_GROUP ${folder})
    endif()
  endforeach()
endfunction()
