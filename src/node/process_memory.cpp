// SPDX-License-Identifier: Apache-2.0
#include "node/process_memory.hpp"

#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include "kolo/error.hpp"
#include "node/error_codes.hpp"

namespace kolo::internal::node {
namespace {

constexpr std::uint64_t probed_value = 0x6b6f6c6f2d6f6b21;
// Not constant, so that it lies in memory of its own that can be written.
std::uint64_t probed = probed_value;

/// An address of another process.
void* foreign(std::uint64_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

using Call = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long,
                         unsigned long);

/// The kernel moves part of it if a page in the middle cannot be accessed.
bool move(Call call, pid_t pid, iovec own, iovec other) noexcept {
  while (own.iov_len > 0) {
    const ssize_t moved = call(pid, &own, 1, &other, 1, 0);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) return false;
    if (moved == 0) {
      errno = EFAULT;
      return false;
    }
    const auto bytes = static_cast<std::size_t>(moved);
    own = {static_cast<char*>(own.iov_base) + bytes, own.iov_len - bytes};
    other = {static_cast<char*>(other.iov_base) + bytes, other.iov_len - bytes};
  }
  return true;
}

/// After `move` has returned false.
[[nodiscard]] bool ended_or_throw(const OtherProcess& process, const char* verb,
                                  std::size_t bytes) {
  const int error = errno;
  if (error == ESRCH) return false;
  throw BackendError(fmt::format("{} bytes of a tensor of process {} on this host cannot be {}: {}",
                                 bytes, process.pid(), verb, error_text(error)));
}

}  // namespace

bool read_memory(const OtherProcess& process, std::uint64_t from, std::span<std::byte> to) {
  return move(::process_vm_readv, process.pid(), {to.data(), to.size()},
              {foreign(from), to.size()}) ||
         ended_or_throw(process, "read", to.size());
}

bool write_memory(const OtherProcess& process, std::span<const std::byte> from, std::uint64_t to) {
  // The kernel only reads it.
  void* const source = const_cast<std::byte*>(from.data());  // NOLINT
  return move(::process_vm_writev, process.pid(), {source, from.size()},
              {foreign(to), from.size()}) ||
         ended_or_throw(process, "written", from.size());
}

std::uint64_t probed_address() noexcept { return reinterpret_cast<std::uintptr_t>(&probed); }

bool can_access_memory(const OtherProcess& process, std::uint64_t address) noexcept {
  std::uint64_t word = 0;
  return move(::process_vm_readv, process.pid(), {&word, sizeof word},
              {foreign(address), sizeof word}) &&
         word == probed_value &&
         move(::process_vm_writev, process.pid(), {&word, sizeof word},
              {foreign(address), sizeof word});
}

bool is_accessible(std::span<const std::byte> memory) noexcept {
  if (memory.empty()) return true;
  for (const std::byte* const place : {&memory.front(), &memory.back()}) {
    std::byte read{};
    if (!move(::process_vm_readv, ::getpid(), {&read, 1},
              {const_cast<std::byte*>(place), 1}))  // NOLINT
      return false;
  }
  return true;
}

}  // namespace kolo::internal::node
