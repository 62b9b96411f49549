# Debian cannot install libdnnl-dev of two architectures side by side, though the headers differ
# only in what GPU runtime there is: those of the build machine serve, with Arm's library.
find_path(dnnl_include_dir oneapi/dnnl/dnnl.hpp REQUIRED)
find_library(dnnl_library NAMES libdnnl.so.2 libdnnl.so.3 REQUIRED)
add_library(DNNL::dnnl SHARED IMPORTED)
set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION "${dnnl_library}"
  INTERFACE_INCLUDE_DIRECTORIES "${dnnl_include_dir}")
