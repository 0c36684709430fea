// SPDX-License-Identifier: Apache-2.0
// The secret of the tests' jobs.
#pragma once

#include "rendezvous/message.hpp"

namespace kolo::internal::rendezvous {

inline Secret make_secret() {
  Secret secret{};
  for (std::size_t i = 0; i < secret.size(); ++i) secret[i] = static_cast<std::byte>(i * 7);
  return secret;
}

}  // namespace kolo::internal::rendezvous
