#include "assay/measure/machine.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>

#include "assay/base/parallel.h"
#include "assay/base/target.h"

namespace assay {
namespace {

// Of the dozens of flags a CPU has, those that decide which kernel can run.
constexpr std::string_view kFeatures[] = {
    "sse4_1",      "avx2",     "fma",         "f16c",       "avx_vnni",    "avx512f",
    "avx512bw",    "avx512vl", "avx512_vbmi", "avx512vbmi", "avx512_vnni", "avx512_bf16",
    "avx512_fp16", "amx_tile", "amx_bf16",    "amx_int8",   "asimd",       "asimddp",
    "bf16",        "i8mm",     "sve",         "sve2",
};

std::string ValueAfterColon(const std::string& line) {
  const size_t colon = line.find(':');
  if (colon == std::string::npos) return {};
  const size_t first = line.find_first_not_of(" \t", colon + 1);
  return first == std::string::npos ? std::string() : line.substr(first);
}

void ReadCpuInfo(Machine& machine) {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  // The first processor speaks for all; its lines end at the first empty one.
  while (std::getline(info, line) && !line.empty()) {
    if (line.starts_with("model name")) machine.cpu = ValueAfterColon(line);
    if (line.starts_with("flags") || line.starts_with("Features")) {
      std::istringstream flags(ValueAfterColon(line));
      for (std::string flag; flags >> flag;) {
        if (std::find(std::begin(kFeatures), std::end(kFeatures), flag) != std::end(kFeatures)) {
          machine.features.push_back(flag);
        }
      }
    }
  }
  if (machine.cpu.empty()) machine.cpu = "unknown";
}

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "32K", "2048K", "300M"
int64_t ParseCacheSize(const std::string& text) {
  std::istringstream stream(text);
  int64_t size = 0;
  char unit = 0;
  if (!(stream >> size)) return 0;
  stream >> unit;
  if (unit == 'K') return size << 10;
  if (unit == 'M') return size << 20;
  return size;
}

void ReadCaches(Machine& machine) {
  constexpr int kMaxCaches = 8;
  for (int i = 0; i < kMaxCaches; ++i) {
    const std::string base = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(i) + "/";
    CacheLevel cache;
    cache.num_bytes = ParseCacheSize(FirstLine(base + "size"));
    if (cache.num_bytes == 0) break;
    std::istringstream(FirstLine(base + "level")) >> cache.level;
    cache.type = FirstLine(base + "type");
    machine.caches.push_back(cache);
  }
}

// A number at the start of a file; 0 when there is none ("max").
int64_t NumberIn(const std::string& path) {
  int64_t value = 0;
  std::ifstream(path) >> value;
  return std::max<int64_t>(value, 0);
}

std::string CompilerName() {
#if defined(__clang__)
  return "clang " + std::to_string(__clang_major__) + "." + std::to_string(__clang_minor__) + "." +
         std::to_string(__clang_patchlevel__);
#else
  return "gcc " + std::to_string(__GNUC__) + "." + std::to_string(__GNUC_MINOR__) + "." +
         std::to_string(__GNUC_PATCHLEVEL__);
#endif
}

}  // namespace

int64_t Machine::LastCacheBytes() const noexcept {
  int64_t largest = 0;
  for (const CacheLevel& cache : caches) largest = std::max(largest, cache.num_bytes);
  return largest;
}

int64_t FreeMemoryBytes() {
  std::ifstream info("/proc/meminfo");
  int64_t available = 0;
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("MemAvailable:")) {
      std::istringstream(ValueAfterColon(line)) >> available;
      available <<= 10;
    }
  }
  // Of a container; files it only caches can go.
  const std::string group = "/sys/fs/cgroup/";
  const int64_t limit = NumberIn(group + "memory.max");
  if (limit > 0) {
    int64_t cached = 0;
    std::ifstream stat(group + "memory.stat");
    std::string key;
    for (int64_t value = 0; stat >> key >> value;) {
      if (key == "inactive_file") cached = value;
    }
    const int64_t left = std::max<int64_t>(0, limit - NumberIn(group + "memory.current") + cached);
    available = available == 0 ? left : std::min(available, left);
  }
  return available;
}

Machine DescribeMachine() {
  Machine machine;
  ReadCpuInfo(machine);
  ReadCaches(machine);
  machine.isa = ActiveTargetName();
  machine.threads = NumThreads();
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) machine.num_cpus = CPU_COUNT(&allowed);
  machine.compiler = CompilerName();
  utsname name{};
  if (uname(&name) == 0) {
    machine.architecture = name.machine;
    machine.os = std::string(name.sysname) + " " + name.release;
  }
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGE_SIZE);
  if (pages > 0 && page_bytes > 0) {
    machine.memory_bytes = static_cast<int64_t>(pages) * static_cast<int64_t>(page_bytes);
  }
  return machine;
}

}  // namespace assay
