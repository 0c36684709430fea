// SPDX-License-Identifier: Apache-2.0
#include "node/error_codes.hpp"

#include <mpi.h>

#include <array>
#include <string_view>

namespace kolo::internal::node {

void check_mpi(int code, const char* doing) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  // MPI_Error_string may only be called once MPI is initialized.
  int running = 0;
  MPI_Initialized(&running);
  if (running != 0) MPI_Error_string(code, text.data(), &length);
  throw BackendError(fmt::format("{} failed with code {}{}{}", doing, code, length > 0 ? ": " : "",
                                 std::string_view(text.data(), static_cast<std::size_t>(length))));
}

}  // namespace kolo::internal::node
