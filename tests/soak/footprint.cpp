// SPDX-License-Identifier: Apache-2.0
#include "footprint.hpp"

#include <malloc.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace kolo::internal::soak {
namespace {

constexpr std::array fields{std::pair{"resident memory", &Footprint::resident},
                            std::pair{"resident shared memory", &Footprint::shared},
                            std::pair{"file descriptors", &Footprint::descriptors},
                            std::pair{"/dev/shm", &Footprint::dev_shm}};

std::int64_t used_of_dev_shm() {
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) != 0) return 0;
  return static_cast<std::int64_t>((shm.f_blocks - shm.f_bfree) * shm.f_frsize);
}

void raise(Footprint& most, const Footprint& now) {
  for (const auto& [name, field] : fields) most.*field = std::max(most.*field, now.*field);
}

}  // namespace

Footprint measure_footprint() {
  // The allocator keeps, per thread, as much as random programs have ever used.
  ::malloc_trim(0);
  Footprint now;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    std::int64_t kilobytes = 0;
    if (word == "VmRSS:" && status >> kilobytes) now.resident = kilobytes << 10;
    if (word == "RssShmem:" && status >> kilobytes) now.shared = kilobytes << 10;
  }
  if (now.resident == 0) throw std::runtime_error("/proc/self/status says nothing of memory");
  now.descriptors = std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                  std::filesystem::directory_iterator());
  now.dev_shm = used_of_dev_shm();
  return now;
}

void Watch::add(std::chrono::duration<double> after, const Footprint& footprint) {
  const double part = after / planned_;
  if (!std::exchange(any_, true)) summary_.first = footprint;
  summary_.last = footprint;
  if (part < 0.1) return;
  raise(summary_.most, footprint);
  if (part < 0.4 || summary_.early.resident == 0) raise(summary_.early, footprint);
  if (part >= 0.7) raise(summary_.late, footprint);
}

Watch::Summary Watch::summary() const {
  if (summary_.early.resident == 0)
    throw std::runtime_error("nothing was measured after the warm-up");
  Summary summary = summary_;
  if (summary.late.resident == 0) summary.late = summary.last;
  return summary;
}

std::string find_growth(const Watch::Summary& summary) {
  std::string text;
  for (const auto& [name, field] : fields) {
    const std::int64_t growth = summary.late.*field - summary.early.*field;
    if (growth <= Watch::allowed.*field) continue;
    text += (text.empty() ? "" : ", ") + std::string(name) + " grew by " + std::to_string(growth) +
            " (" + std::to_string(Watch::allowed.*field) + " are allowed)";
  }
  return text;
}

}  // namespace kolo::internal::soak
