#include "assay/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <utility>

#include "assay/base/error.h"
#include "assay/base/text.h"

namespace assay {
namespace internal {

// One live mapping, as the signal handler sees it. Slots are never freed, only used again, so the
// handler can walk the list without a lock. `begin` is 0 while a slot is free or being written.
struct MappingSlot {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};
  std::atomic<bool> damaged{false};
  std::atomic<bool> taken{false};
  MappingSlot* next = nullptr;
};

}  // namespace internal

namespace {

using internal::MappingSlot;

std::atomic<MappingSlot*> g_slots{nullptr};
struct sigaction g_previous_action;
uintptr_t g_page_bytes = 0;

static_assert(std::atomic<uintptr_t>::is_always_lock_free);

MappingSlot* FindSlot(uintptr_t address) noexcept {
  for (MappingSlot* slot = g_slots.load(std::memory_order_acquire); slot; slot = slot->next) {
    const uintptr_t begin = slot->begin.load(std::memory_order_acquire);
    const uintptr_t end = slot->end.load(std::memory_order_acquire);
    // Read again: a slot that is being reused shows another begin (or 0) by now.
    if (begin != 0 && begin <= address && address < end &&
        slot->begin.load(std::memory_order_acquire) == begin) {
      return slot;
    }
  }
  return nullptr;
}

void PassOn(int signal, siginfo_t* info, void* context) {
  if ((g_previous_action.sa_flags & SA_SIGINFO) != 0) {
    g_previous_action.sa_sigaction(signal, info, context);
  } else if (g_previous_action.sa_handler == SIG_IGN && info->si_code <= 0) {
    return;  // sent by a process, and ignored before
  } else if (g_previous_action.sa_handler == SIG_DFL || g_previous_action.sa_handler == SIG_IGN) {
    struct sigaction action = {};
    action.sa_handler = SIG_DFL;
    sigaction(signal, &action, nullptr);
    raise(signal);  // delivered when this handler returns
  } else {
    g_previous_action.sa_handler(signal);
  }
}

// Only async-signal-safe steps: atomics and the mmap system call.
void OnBusError(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  MappingSlot* slot = info->si_code > 0 ? FindSlot(address) : nullptr;
  if (slot != nullptr) {
    // The rest of the mapping at once: what lies behind the fault counts no more, and page by page
    // would take one signal each and could run into the limit on mappings.
    const uintptr_t first = address & ~(g_page_bytes - 1);
    const uintptr_t end = slot->end.load(std::memory_order_acquire);
    slot->damaged.store(true, std::memory_order_release);
    void* zeros = mmap(reinterpret_cast<void*>(first), end - first, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    if (zeros != MAP_FAILED) {
      errno = saved_errno;
      return;
    }
  }
  PassOn(signal, info, context);
  errno = saved_errno;
}

void InstallHandler() {
  static std::once_flag once;
  std::call_once(once, [] {
    g_page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    struct sigaction action = {};
    action.sa_sigaction = OnBusError;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigemptyset(&action.sa_mask);
    // The previous action must be in place before the handler can run and pass on to it.
    if (sigaction(SIGBUS, nullptr, &g_previous_action) != 0 ||
        sigaction(SIGBUS, &action, nullptr) != 0) {
      ThrowInternal("SIGBUS handler: {}", std::strerror(errno));
    }
  });
}

MappingSlot* TakeSlot() {
  for (MappingSlot* slot = g_slots.load(std::memory_order_acquire); slot; slot = slot->next) {
    bool expected = false;
    if (slot->taken.compare_exchange_strong(expected, true)) return slot;
  }
  auto* slot = new MappingSlot;
  slot->taken.store(true);
  slot->next = g_slots.load(std::memory_order_relaxed);
  while (!g_slots.compare_exchange_weak(slot->next, slot, std::memory_order_release)) {
  }
  return slot;
}

// Live files, and the fault of the first that was closed with one: VerifyAll answers for both.
struct OpenFiles {
  std::mutex mutex;
  std::set<const MappedFile*> live;
  std::string untold_fault;
};

OpenFiles& Files() {
  static auto* files = new OpenFiles;  // never destroyed: mappings may outlive static objects
  return *files;
}

[[noreturn]] void ThrowCannotOpen(const std::string& path, int error) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (error == ENOENT && fs::is_symlink(fs::symlink_status(path, ignored))) {
    ThrowInput("{}: the link points to {}, which does not exist; is the download complete?", path,
               fs::read_symlink(path, ignored).string());
  }
  ThrowInput("{}: {}", path, std::strerror(error));
}

void RequireRegular(const std::string& path, const struct stat& status) {
  if (S_ISREG(status.st_mode)) return;
  const char* found = S_ISDIR(status.st_mode)    ? "a folder"
                      : S_ISFIFO(status.st_mode) ? "a FIFO"
                      : S_ISSOCK(status.st_mode) ? "a socket"
                                                 : "a device";
  ThrowInput("{}: expected a regular file, found {}", path, found);
}

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::Open(const std::string& path) {
  if (path.find('\0') != std::string::npos) {
    ThrowInput("{}: a path cannot hold a NUL", Quoted(path));
  }
  struct stat status = {};
  // Before open, because opening some devices has effects; after it, because the path may have
  // changed hands. O_NONBLOCK keeps a FIFO that slips in between from blocking.
  if (stat(path.c_str(), &status) != 0) ThrowCannotOpen(path, errno);
  RequireRegular(path, status);
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) ThrowCannotOpen(path, errno);
  const std::shared_ptr<MappedFile> file(new MappedFile(path, descriptor));
  if (fstat(descriptor, &status) != 0) ThrowCannotOpen(path, errno);
  RequireRegular(path, status);
  if (status.st_size > 0) {
    InstallHandler();
    const auto num_bytes = static_cast<size_t>(status.st_size);
    void* address = mmap(nullptr, num_bytes, PROT_READ, MAP_SHARED, descriptor, 0);
    if (address == MAP_FAILED) ThrowInput("{}: cannot map it: {}", path, std::strerror(errno));
    file->bytes_ = {static_cast<const std::byte*>(address), num_bytes};
    file->slot_ = TakeSlot();
    const auto begin = reinterpret_cast<uintptr_t>(address);
    const uintptr_t whole_pages = (num_bytes + g_page_bytes - 1) & ~(g_page_bytes - 1);
    file->slot_->damaged.store(false);
    file->slot_->end.store(begin + whole_pages, std::memory_order_release);
    file->slot_->begin.store(begin, std::memory_order_release);
  }
  const std::lock_guard lock(Files().mutex);
  Files().live.insert(file.get());
  return file;
}

MappedFile::~MappedFile() {
  {
    const std::string fault = told_.load() ? std::string() : Fault();
    const std::lock_guard lock(Files().mutex);
    Files().live.erase(this);
    if (Files().untold_fault.empty()) Files().untold_fault = fault;
  }
  if (slot_ != nullptr) {
    slot_->begin.store(0, std::memory_order_release);
    munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
    slot_->taken.store(false, std::memory_order_release);
  }
  close(descriptor_);
}

std::string MappedFile::Fault() const {
  if (slot_ == nullptr) return {};
  if (slot_->damaged.load(std::memory_order_acquire)) {
    return fmt::format("{}: the file became shorter, or its disk failed, while it was read", path_);
  }
  // Inside its last page, a cut file reads as zeros without a signal; only its size tells.
  struct stat status = {};
  if (fstat(descriptor_, &status) != 0) return fmt::format("{}: {}", path_, std::strerror(errno));
  if (status.st_size >= num_bytes()) return {};
  return fmt::format("{}: the file had {} bytes when it was opened and has {} now", path_,
                     Grouped(num_bytes()), Grouped(int64_t{status.st_size}));
}

void MappedFile::Verify() const {
  const std::string fault = Fault();
  if (fault.empty()) return;
  told_.store(true);
  ThrowInput("{}", fault);
}

void MappedFile::VerifyAll() {
  OpenFiles& files = Files();
  const std::lock_guard lock(files.mutex);
  if (!files.untold_fault.empty()) ThrowInput("{}", std::exchange(files.untold_fault, {}));
  for (const MappedFile* file : files.live) file->Verify();
}

}  // namespace assay
