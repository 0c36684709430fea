// SPDX-License-Identifier: Apache-2.0
#include "messenger/fabric_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <thread>

#include "base/blocked_signals.hpp"
#include "base/process_limits.hpp"
#include "kolo/error.hpp"
#include "messenger/fabric.hpp"
#include "messenger/kept_signals.hpp"

namespace kolo::internal::messenger {
namespace {

// The version of Debian 12; later libraries remain compatible.
constexpr std::uint32_t api_version = FI_VERSION(1, 17);

template <typename Function>
Function find(void* library, const char* name) {
  auto* const found = reinterpret_cast<Function>(::dlsym(library, name));
  if (found == nullptr) throw BackendError(fmt::format("libfabric has no {}", name));
  return found;
}

FabricFunctions load() {
  const KeptSignals kept;
  void* const library = ::dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);  // never closed
  if (library == nullptr)
    throw BackendError(fmt::format("libfabric is not found: {}", ::dlerror()));
  return {find<decltype(&::fi_getinfo)>(library, "fi_getinfo"),
          find<decltype(&::fi_freeinfo)>(library, "fi_freeinfo"),
          find<decltype(&::fi_dupinfo)>(library, "fi_dupinfo"),
          find<decltype(&::fi_fabric)>(library, "fi_fabric"),
          find<decltype(&::fi_strerror)>(library, "fi_strerror")};
}

/// Hints name the provider explicitly: other providers of the same protocol spin while idle.
Info search(const std::string& provider) {
  const FabricFunctions& functions = fabric_functions();
  const Info hints(functions.dupinfo(nullptr));
  if (!hints) throw BackendError("fi_dupinfo: no memory");
  hints->ep_attr->type = FI_EP_MSG;
  hints->caps = FI_MSG;
  hints->mode = FI_CONTEXT;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;  // Kolo uses a domain from one thread at a time
  hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
  hints->fabric_attr->prov_name = ::strdup(provider.c_str());
  fi_info* found = nullptr;
  const KeptSignals kept;
  const int result = functions.getinfo(api_version, nullptr, nullptr, 0, hints.get(), &found);
  if (result != 0)
    throw BackendError(
        fmt::format("libfabric's provider {} finds no network with connected "
                    "endpoints: {}",
                    provider, fabric_error(result)));
  return Info(found);
}

/// Never destroyed, and neither are the results: the search threads may outlive `main`.
struct Searches {
  std::mutex mutex{};
  std::map<std::string, std::shared_future<const fi_info*>> by_provider{};
};
Searches& searches = *new Searches;

/// Runs at exit: a search uses objects that the libraries' destructors destroy.
void await_searches() {
  const std::lock_guard lock(searches.mutex);
  for (const auto& [provider, found] : searches.by_provider)
    found.wait_for(std::chrono::seconds(5));
}

std::shared_future<const fi_info*> begin_search(const std::string& provider) {
  const std::lock_guard lock(searches.mutex);
  if (const auto found = searches.by_provider.find(provider); found != searches.by_provider.end())
    return found->second;
  static_cast<void>(fabric_functions());
  // Registered after libfabric is loaded, so that it runs before libfabric's destructors.
  static const int registered = std::atexit(await_searches);
  static_cast<void>(registered);
  std::packaged_task<const fi_info*()> task([provider] { return search(provider).release(); });
  std::shared_future<const fi_info*> found = task.get_future().share();
  {
    const BlockedSignals blocked;
    std::thread(std::move(task)).detach();
  }
  searches.by_provider.emplace(provider, found);
  return found;
}

int descriptor_of(fid& object) {
  int descriptor = -1;
  check_fabric(::fi_control(&object, FI_GETWAIT, &descriptor), "fi_control");
  return descriptor;
}

}  // namespace

bool read_event(fid_eq& events, FabricEvent& event) {
  constexpr std::size_t max_private_data = 256;
  alignas(fi_eq_cm_entry) std::array<std::byte, sizeof(fi_eq_cm_entry) + max_private_data> buffer{};
  // libfabric 1.17 takes an EAGAIN of an earlier call for its own, and then keeps a connection
  // whose other side has hung up.
  errno = 0;
  const auto bytes = ::fi_eq_read(&events, &event.kind, buffer.data(), buffer.size(), 0);
  if (bytes == -FI_EAVAIL) {
    // The queue hands out error events by a separate call.
    fi_eq_err_entry error{};
    if (::fi_eq_readerr(&events, &error, 0) <= 0) return false;
    event.object = error.fid;
    event.error = fabric_error(-error.err);
    return true;
  }
  if (bytes < 0) return false;
  const auto& entry = *reinterpret_cast<const fi_eq_cm_entry*>(buffer.data());
  event.object = entry.fid;
  if (event.kind == FI_CONNREQ) event.info.reset(entry.info);
  const auto* const data = reinterpret_cast<const std::byte*>(entry.data);
  if (static_cast<std::size_t>(bytes) > sizeof entry)
    event.handshake.assign(data, data + (static_cast<std::size_t>(bytes) - sizeof entry));
  return true;
}

const FabricFunctions& fabric_functions() {
  static const FabricFunctions functions = load();
  return functions;
}

void find_fabric(const std::string& provider) { static_cast<void>(begin_search(provider)); }

Info found_fabric(const std::string& provider) {
  Info copy(fabric_functions().dupinfo(begin_search(provider).get()));
  if (!copy) throw BackendError("fi_dupinfo: no memory");
  return copy;
}

void set_address(void*& address, std::size_t& length, fi_info& info,
                 const transport::SocketAddress& to) {
  const transport::SystemAddress system = to.to_system();
  std::free(address);  // allocated by malloc, as fi_freeinfo expects
  address = std::malloc(system.length);
  if (address == nullptr) throw std::bad_alloc();
  std::memcpy(address, system.get(), system.length);
  length = system.length;
  info.addr_format = to.family == AF_INET ? FI_SOCKADDR_IN : FI_SOCKADDR_IN6;
}

std::string fabric_error(long result) {
  std::string text = fabric_functions().strerror(static_cast<int>(-result));
  // Providers of RDMA networks pin memory.
  if (result == -FI_ENOMEM) text += limits_text({RLIMIT_AS, RLIMIT_DATA, RLIMIT_MEMLOCK});
  return text;
}

void check_fabric(long result, const char* call) {
  if (result < 0) throw BackendError(fmt::format("{}: {}", call, fabric_error(result)));
}

FabricDomain::FabricDomain(const std::string& provider) : info(found_fabric(provider)) {
  check_fabric(fabric_functions().fabric(info->fabric_attr, fabric.out(), nullptr), "fi_fabric");
  check_fabric(::fi_domain(fabric.get(), info.get(), domain.out(), nullptr), "fi_domain");
  fi_eq_attr event_attributes{};
  event_attributes.wait_obj = FI_WAIT_FD;
  check_fabric(::fi_eq_open(fabric.get(), &event_attributes, events.out(), nullptr), "fi_eq_open");
  fi_cq_attr completion_attributes{};
  completion_attributes.format = FI_CQ_FORMAT_MSG;
  completion_attributes.wait_obj = FI_WAIT_FD;
  completion_attributes.size = 4096;
  check_fabric(::fi_cq_open(domain.get(), &completion_attributes, completions.out(), nullptr),
               "fi_cq_open");
}

void FabricDomain::drain() const {
  constexpr int max_rounds = 100;  // more rounds are needed only while other ranks still call
  for (int round = 0; round < max_rounds; ++round) {
    std::array<fi_cq_msg_entry, 16> entries;
    for (;;) {
      const auto count = ::fi_cq_read(completions.get(), entries.data(), entries.size());
      fi_cq_err_entry error{};
      if (count == -FI_EAVAIL && ::fi_cq_readerr(completions.get(), &error, 0) > 0) continue;
      if (count <= 0) break;
    }
    for (FabricEvent event; read_event(*events.get(), event); event = {})
      if (event.info) refuse(*event.info);
    // fi_trywait resets the descriptors, and fails if an event has arrived meanwhile.
    std::array<fid*, 2> queues{&events->fid, &completions->fid};
    if (::fi_trywait(fabric.get(), queues.data(), queues.size()) == FI_SUCCESS) return;
  }
}

int FabricDomain::event_descriptor() const { return descriptor_of(events->fid); }
int FabricDomain::completion_descriptor() const { return descriptor_of(completions->fid); }

FabricHandle<fid_ep> FabricDomain::make_endpoint(fi_info& its_info) const {
  FabricHandle<fid_ep> endpoint;
  check_fabric(::fi_endpoint(domain.get(), &its_info, endpoint.out(), nullptr), "fi_endpoint");
  check_fabric(::fi_ep_bind(endpoint.get(), &events->fid, 0), "fi_ep_bind");
  check_fabric(::fi_ep_bind(endpoint.get(), &completions->fid, FI_TRANSMIT | FI_RECV),
               "fi_ep_bind");
  check_fabric(::fi_enable(endpoint.get()), "fi_enable");
  return endpoint;
}

}  // namespace kolo::internal::messenger
