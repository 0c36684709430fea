#include "node/process_memory.hpp"

#include <sys/uio.h>

namespace kolo::node {

bool read_memory(pid_t process, std::uintptr_t from, std::byte* to, std::size_t bytes) {
  while (bytes > 0) {
    const iovec local{to, bytes};
    const iovec remote{reinterpret_cast<void*>(from), bytes};  // NOLINT: of the other process
    const ssize_t read = ::process_vm_readv(process, &local, 1, &remote, 1, 0);
    if (read <= 0) return false;
    const auto done = static_cast<std::size_t>(read);
    to += done;
    from += done;
    bytes -= done;
  }
  return true;
}

}  // namespace kolo::node
