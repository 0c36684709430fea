// SPDX-License-Identifier: Apache-2.0
// libfabric, loaded at run time, and owners of its objects.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/handshake.hpp"
#include "transport/socket_address.hpp"

namespace kolo::internal::messenger {

/// The functions of libfabric that are not methods of its objects.
struct FabricFunctions {
  decltype(&::fi_getinfo) getinfo;
  decltype(&::fi_freeinfo) freeinfo;
  decltype(&::fi_dupinfo) dupinfo;
  decltype(&::fi_fabric) fabric;
  decltype(&::fi_strerror) strerror;
};

/// Loads libfabric at the first call, so that the program starts without it. Throws BackendError.
[[nodiscard]] const FabricFunctions& fabric_functions();

struct FreeInfo {
  void operator()(fi_info* info) const { fabric_functions().freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

/// A copy of the search result for the provider. Waits for `find_fabric`. Throws BackendError.
[[nodiscard]] Info found_fabric(const std::string& provider);

/// Replaces `address`, a member of `info`, by `to`.
void set_address(void*& address, std::size_t& length, fi_info& info,
                 const transport::SocketAddress& to);

/// The message for a negative `result`.
[[nodiscard]] std::string fabric_error(long result);
/// Throws BackendError with the name of the call if `result` is negative.
void check_fabric(long result, const char* call);

/// Owns an object of libfabric.
template <typename Object>
class FabricHandle {
 public:
  FabricHandle() = default;
  FabricHandle(FabricHandle&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  FabricHandle& operator=(FabricHandle&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~FabricHandle() { reset(); }

  void reset() {
    if (object_ != nullptr) ::fi_close(&object_->fid);
    object_ = nullptr;
  }
  [[nodiscard]] Object* get() const { return object_; }
  [[nodiscard]] Object* operator->() const { return object_; }
  [[nodiscard]] explicit operator bool() const { return object_ != nullptr; }
  /// The place where a call that creates an object stores it.
  [[nodiscard]] Object** out() { return &object_; }

 private:
  Object* object_ = nullptr;
};

/// The objects that all endpoints of a rank share, in the order of their construction.
struct FabricDomain {
  explicit FabricDomain(const std::string& provider);

  Info info;
  FabricHandle<fid_fabric> fabric{};
  FabricHandle<fid_domain> domain{};
  FabricHandle<fid_eq> events{};
  FabricHandle<fid_cq> completions{};
  // Must live as long as the event queue: libfabric keeps pointers to passive endpoints for
  // connections that have not sent anything yet.
  std::vector<FabricHandle<fid_pep>> passive{};

  [[nodiscard]] int event_descriptor() const;
  [[nodiscard]] int completion_descriptor() const;
  /// True if memory must be registered before the network reads or writes it.
  [[nodiscard]] bool registers_memory() const {
    return (info->domain_attr->mr_mode & FI_MR_LOCAL) != 0;
  }
  void refuse(const fi_info& call) const {
    if (!passive.empty()) ::fi_reject(passive.front().get(), call.handle, nullptr, 0);
  }
  /// Discards everything in the queues and refuses calls.
  void drain() const;
  /// Creates an endpoint that is bound to both queues.
  [[nodiscard]] FabricHandle<fid_ep> make_endpoint(fi_info& its_info) const;
};

/// An event of the event queue.
struct FabricEvent {
  std::uint32_t kind = 0;
  fid* object = nullptr;
  Info info{};  // describes a call
  // The other side's message of the handshake, maybe with zeros behind it; empty if there is none.
  std::vector<std::byte> handshake{};
  std::string error{};  // the object has failed
};

/// Returns false if the queue is empty.
[[nodiscard]] bool read_event(fid_eq& events, FabricEvent& event);

}  // namespace kolo::internal::messenger
