#include "assay/kernels/dense.h"

#include <fmt/format.h>

#include <dnnl.hpp>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "assay/base/error.h"
#include "assay/base/parallel.h"

namespace assay {
namespace {

using dnnl::memory;

dnnl::engine& Engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

memory::data_type TypeOf(DType dtype) {
  if (dtype == DType::kF32) return memory::data_type::f32;
  if (dtype == DType::kBF16 && DenseSupports(dtype)) return memory::data_type::bf16;
  ThrowUsage("dense product of {}: not supported on this machine", NameOf(dtype));
}

/// The library takes its threads from OpenMP's setting of the calling thread.
class ScopedThreads {
 public:
  ScopedThreads() {
#ifdef _OPENMP
    before_ = omp_get_max_threads();
    omp_set_num_threads(NumThreads());
#endif
  }
  ~ScopedThreads() {
#ifdef _OPENMP
    omp_set_num_threads(before_);
#endif
  }
  ScopedThreads(const ScopedThreads&) = delete;
  ScopedThreads& operator=(const ScopedThreads&) = delete;

 private:
#ifdef _OPENMP
  int before_ = 1;
#endif
};

dnnl::matmul MakePrimitive(const memory::desc& x, const memory::desc& w, const memory::desc& y) {
#if DNNL_VERSION_MAJOR >= 3
  return dnnl::matmul(dnnl::matmul::primitive_desc(Engine(), x, w, y));
#else
  return dnnl::matmul(dnnl::matmul::primitive_desc(dnnl::matmul::desc(x, w, y), Engine()));
#endif
}

}  // namespace

void DenseProduct(DType dtype, int64_t num_x_rows, int64_t num_w_rows, int64_t k, const void* x,
                  const void* w, float* y) {
  const memory::data_type type = TypeOf(dtype);
  try {
    const ScopedThreads threads;
    const memory::desc x_desc({num_x_rows, k}, type, {k, 1});
    const memory::desc w_desc({k, num_w_rows}, type, {1, k});
    const memory::desc y_desc({num_x_rows, num_w_rows}, memory::data_type::f32, {num_w_rows, 1});
    // The library keeps a cache of primitives: making the same one again is cheap.
    dnnl::stream stream(Engine());
    MakePrimitive(x_desc, w_desc, y_desc)
        .execute(stream, {{DNNL_ARG_SRC, memory(x_desc, Engine(), const_cast<void*>(x))},
                          {DNNL_ARG_WEIGHTS, memory(w_desc, Engine(), const_cast<void*>(w))},
                          {DNNL_ARG_DST, memory(y_desc, Engine(), y)}});
    stream.wait();
  } catch (const dnnl::error& error) {
    ThrowInternal("dense product [{}, {}] x [{}, {}] of {}: oneDNN: {}", num_x_rows, k, num_w_rows,
                  k, NameOf(dtype), error.what());
  }
}

bool DenseSupports(DType dtype) {
  if (dtype == DType::kF32) return true;
  if (dtype != DType::kBF16) return false;
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto bf16 = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return (isa & bf16) == bf16;
}

std::string DenseLibraryName() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace assay
