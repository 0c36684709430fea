// SPDX-License-Identifier: Apache-2.0
#include "kolo/error.hpp"
#include "messenger/fabric.hpp"

namespace kolo::internal::messenger {

void find_fabric(const std::string& /*provider*/) {}

std::unique_ptr<DataListener> listen_on_fabric(
    const ListenOptions& /*options*/, const std::string& /*provider*/,
    const std::vector<transport::SocketAddress>& /*addresses*/) {
  throw BackendError("this build of Kolo is without libfabric");
}

}  // namespace kolo::internal::messenger
