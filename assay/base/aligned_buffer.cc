#include "assay/base/aligned_buffer.h"

#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace assay {

std::shared_ptr<std::byte> AllocateAligned(size_t num_bytes) {
  constexpr size_t kLine = 64;
  constexpr size_t kHugePage = size_t{2} << 20;
  constexpr size_t kHugeFrom = 2 * kHugePage;
  const std::align_val_t alignment{num_bytes >= kHugeFrom ? kHugePage : kLine};
  auto* data = static_cast<std::byte*>(::operator new(num_bytes, alignment));
#ifdef __linux__
  if (num_bytes >= kHugeFrom) {
    // Only whole pages: the rest of the last one may belong to a neighbour. Advice; may be refused.
    static_cast<void>(madvise(data, num_bytes / kHugePage * kHugePage, MADV_HUGEPAGE));
  }
#endif
  return {data, [alignment](std::byte* p) { ::operator delete(p, alignment); }};
}

}  // namespace assay
