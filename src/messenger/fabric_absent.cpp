// SPDX-License-Identifier: Apache-2.0
#include "kolo/error.hpp"
#include "messenger/fabric.hpp"

namespace kolo::internal::messenger {

void find_fabric(const std::string& /*provider*/) {}

std::unique_ptr<FabricListener> listen_on_fabric(
    const FabricOptions& /*options*/, const std::vector<transport::SocketAddress>& /*addresses*/) {
  throw BackendError("this build of Kolo is without libfabric");
}

}  // namespace kolo::internal::messenger
