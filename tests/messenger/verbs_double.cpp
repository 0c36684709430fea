// SPDX-License-Identifier: Apache-2.0
// A libfabric whose provider `verbs` is `tcp`, with the rules of verbs that `tcp` does not have:
//
// - Memory that is sent or received is registered, for the right access, until the operation has
// completed or its endpoint is closed.
// - A domain is closed after everything that was registered or opened in it.
// - The private data of a connection has at most 55 bytes, a message at most 1 GiB, and an
// operation at most as many parts as the endpoint's information says.
// - A send fails now and then because the queue is full, and succeeds if it is tried again.
//
// This library takes the place of libfabric.so.1, and loads the real one from KOLO_TEST_LIBFABRIC.
// A broken rule ends the process. The double lacks other properties of verbs (queue pairs, retries,
// limits).
#include <dlfcn.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t max_private_data = 55;
constexpr std::size_t max_message = std::size_t{1} << 30;
constexpr std::size_t max_parts = 4;

[[noreturn]] void broken(const char* rule) {
  std::fprintf(stderr, "verbs double: %s\n", rule);
  std::abort();
}

void require(bool holds, const char* rule) {
  if (!holds) broken(rule);
}

// Loaded together with this one: some providers change the handlers of signals then.
void* const true_library = [] {
  const char* const path = std::getenv("KOLO_TEST_LIBFABRIC");
  require(path != nullptr, "KOLO_TEST_LIBFABRIC is not set");
  void* const loaded = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  require(loaded != nullptr, "the true libfabric cannot be loaded");
  return loaded;
}();

template <typename Function>
Function true_function(const char* name) {
  auto* const found = reinterpret_cast<Function>(::dlsym(true_library, name));
  require(found != nullptr, "the true libfabric lacks a function");
  return found;
}

/// A table of a true object, some of whose functions are ours. All objects of one kind share
/// theirs.
template <typename Table>
class Replaced {
 public:
  /// For each new object.
  template <typename Change>
  void in(Table*& table, Change change) {
    const std::lock_guard lock(mutex_);
    if (original_ == nullptr) {
      original_ = table;
      ours_ = *table;
      change(ours_);
    }
    require(table == original_, "objects of one kind have different tables");
    table = &ours_;
  }
  [[nodiscard]] const Table* operator->() const { return original_; }

 private:
  std::mutex mutex_{};
  Table* original_ = nullptr;
  Table ours_{};
};

struct Tables {
  Replaced<fi_ops> domain_object{};
  Replaced<fi_ops> endpoint_object{};
  Replaced<fi_ops_fabric> fabric{};
  Replaced<fi_ops_domain> domain{};
  Replaced<fi_ops_mr> memory{};
  Replaced<fi_ops_msg> messages{};
  Replaced<fi_ops_cm> connections{};
  Replaced<fi_ops_cq> completions{};
};
Tables& tables = *new Tables;

// ---- what is registered and in flight ----

struct Memory {
  fid_mr object{};  // its address is that of the whole
  const fid_domain* domain = nullptr;
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::uint64_t access = 0;
  int in_flight = 0;
};

struct InFlight {
  const fid_ep* endpoint = nullptr;
  std::vector<Memory*> memory{};
};

struct Books {
  std::mutex mutex{};
  std::map<const void*, std::unique_ptr<Memory>> memory{};  // by descriptor
  std::map<const void*, InFlight> in_flight{};              // by context
  std::map<const fid*, const fid_domain*> endpoints{};
};
Books& books = *new Books;

void forget(const InFlight& operation) {
  for (Memory* const memory : operation.memory) --memory->in_flight;
}

int close_memory(fid* object) {
  const std::lock_guard lock(books.mutex);
  const auto found = books.memory.find(object);
  require(found != books.memory.end(), "memory is closed twice");
  require(found->second->in_flight == 0, "memory is closed while it is sent or received");
  books.memory.erase(found);
  return 0;
}

int register_memory(fid* domain, const void* data, std::size_t bytes, std::uint64_t access,
                    std::uint64_t /*offset*/, std::uint64_t /*key*/, std::uint64_t /*flags*/,
                    fid_mr** made, void* context) {
  static fi_ops operations = [] {
    fi_ops table{};
    table.size = sizeof table;
    table.close = close_memory;
    return table;
  }();
  require(bytes > 0, "no bytes are registered");
  auto memory = std::make_unique<Memory>();
  memory->object.fid = {.fclass = FI_CLASS_MR, .context = context, .ops = &operations};
  memory->object.mem_desc = memory.get();
  memory->domain = reinterpret_cast<const fid_domain*>(domain);
  memory->begin = reinterpret_cast<std::uintptr_t>(data);
  memory->end = memory->begin + bytes;
  memory->access = access;
  *made = &memory->object;
  const std::lock_guard lock(books.mutex);
  const void* const descriptor = memory.get();
  books.memory.emplace(descriptor, std::move(memory));
  return 0;
}

/// Ends the process unless this may be sent or received.
InFlight check(const fid_ep* endpoint, const iovec* parts, void* const* descriptors,
               std::size_t count, std::uint64_t access) {
  require(count <= max_parts, "an operation has too many parts");
  InFlight operation{.endpoint = endpoint};
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto found = books.memory.find(descriptors == nullptr ? nullptr : descriptors[i]);
    require(found != books.memory.end(), "memory is not registered");
    Memory& memory = *found->second;
    const auto begin = reinterpret_cast<std::uintptr_t>(parts[i].iov_base);
    require(memory.begin <= begin && begin + parts[i].iov_len <= memory.end,
            "memory is registered only in part");
    require((memory.access & access) != 0, "memory is registered for another access");
    require(memory.domain == books.endpoints.at(&endpoint->fid),
            "memory is registered in another domain");
    bytes += parts[i].iov_len;
    operation.memory.push_back(&memory);
  }
  require(bytes <= max_message, "a message is too long");
  return operation;
}

template <typename Post>
ssize_t post(const fid_ep* endpoint, const iovec* parts, void* const* descriptors,
             std::size_t count, std::uint64_t access, const void* context, Post call) {
  {
    const std::lock_guard lock(books.mutex);
    InFlight operation = check(endpoint, parts, descriptors, count, access);
    for (Memory* const memory : operation.memory) ++memory->in_flight;
    require(books.in_flight.emplace(context, std::move(operation)).second,
            "a context is used by two operations");
  }
  const ssize_t result = call();
  if (result != 0) {
    const std::lock_guard lock(books.mutex);
    const auto found = books.in_flight.find(context);
    forget(found->second);
    books.in_flight.erase(found);
  }
  return result;
}

void complete(const void* context) {
  const std::lock_guard lock(books.mutex);
  const auto found = books.in_flight.find(context);
  if (found == books.in_flight.end()) return;  // its endpoint is closed
  forget(found->second);
  books.in_flight.erase(found);
}

// ---- endpoints ----

ssize_t receive(fid_ep* endpoint, void* data, std::size_t bytes, void* descriptor, fi_addr_t from,
                void* context) {
  const iovec part{data, bytes};
  return post(endpoint, &part, &descriptor, 1, FI_RECV, context,
              [&] { return tables.messages->recv(endpoint, data, bytes, nullptr, from, context); });
}

ssize_t receive_parts(fid_ep* endpoint, const iovec* parts, void** descriptors, std::size_t count,
                      fi_addr_t from, void* context) {
  return post(endpoint, parts, descriptors, count, FI_RECV, context, [&] {
    return tables.messages->recvv(endpoint, parts, nullptr, count, from, context);
  });
}

/// True for some sends: the send queue of an adapter is short.
bool queue_is_full() {
  static std::atomic<unsigned> sends{0};
  return ++sends % 5 == 0;
}

ssize_t send(fid_ep* endpoint, const void* data, std::size_t bytes, void* descriptor, fi_addr_t to,
             void* context) {
  if (queue_is_full()) return -FI_EAGAIN;
  const iovec part{const_cast<void*>(data), bytes};
  return post(endpoint, &part, &descriptor, 1, FI_SEND, context,
              [&] { return tables.messages->send(endpoint, data, bytes, nullptr, to, context); });
}

ssize_t send_parts(fid_ep* endpoint, const iovec* parts, void** descriptors, std::size_t count,
                   fi_addr_t to, void* context) {
  if (queue_is_full()) return -FI_EAGAIN;
  return post(endpoint, parts, descriptors, count, FI_SEND, context,
              [&] { return tables.messages->sendv(endpoint, parts, nullptr, count, to, context); });
}

int connect(fid_ep* endpoint, const void* address, const void* data, std::size_t bytes) {
  require(bytes <= max_private_data, "a call has too much private data");
  return tables.connections->connect(endpoint, address, data, bytes);
}

int accept(fid_ep* endpoint, const void* data, std::size_t bytes) {
  require(bytes <= max_private_data, "an answer has too much private data");
  return tables.connections->accept(endpoint, data, bytes);
}

int close_endpoint(fid* object) {
  {
    const std::lock_guard lock(books.mutex);
    books.endpoints.erase(object);
    std::erase_if(books.in_flight, [&](const auto& entry) {
      if (&entry.second.endpoint->fid != object) return false;
      forget(entry.second);
      return true;
    });
  }
  return tables.endpoint_object->close(object);
}

ssize_t read_completions(fid_cq* queue, void* buffer, std::size_t count) {
  const ssize_t read = tables.completions->read(queue, buffer, count);
  for (ssize_t i = 0; i < read; ++i)
    complete(static_cast<const fi_cq_msg_entry*>(buffer)[i].op_context);
  return read;
}

ssize_t read_failure(fid_cq* queue, fi_cq_err_entry* entry, std::uint64_t flags) {
  const ssize_t read = tables.completions->readerr(queue, entry, flags);
  if (read > 0) complete(entry->op_context);
  return read;
}

// ---- what makes them ----

/// Sets the name and the memory registration mode of the real provider in `info` during the
/// lifetime of this object.
class TrueName {
 public:
  explicit TrueName(fi_info& info)
      : info_(info),
        name_(std::exchange(info.fabric_attr->prov_name, name.data())),
        mode_(std::exchange(info.domain_attr->mr_mode, 0)) {}
  ~TrueName() {
    info_.fabric_attr->prov_name = name_;
    info_.domain_attr->mr_mode = mode_;
  }
  TrueName& operator=(TrueName&&) = delete;

  static inline std::array<char, 4> name{"tcp"};

 private:
  fi_info& info_;
  char* name_;
  int mode_;
};

int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** made, void* context) {
  const TrueName named(*info);
  const int result = tables.domain->endpoint(domain, info, made, context);
  if (result != 0) return result;
  fid_ep* const endpoint = *made;
  tables.messages.in(endpoint->msg, [](fi_ops_msg& table) {
    table.recv = receive;
    table.send = send;
    table.sendv = send_parts;
    table.recvv = receive_parts;
    table.recvmsg = nullptr;  // neither used nor checked
    table.sendmsg = nullptr;
    table.inject = nullptr;
    table.senddata = nullptr;
    table.injectdata = nullptr;
  });
  tables.connections.in(endpoint->cm, [](fi_ops_cm& table) {
    table.connect = connect;
    table.accept = accept;
  });
  tables.endpoint_object.in(endpoint->fid.ops, [](fi_ops& table) { table.close = close_endpoint; });
  const std::lock_guard lock(books.mutex);
  books.endpoints.emplace(&endpoint->fid, domain);
  return result;
}

int open_completions(fid_domain* domain, fi_cq_attr* attributes, fid_cq** made, void* context) {
  require(attributes->format == FI_CQ_FORMAT_MSG, "completions have another format");
  const int result = tables.domain->cq_open(domain, attributes, made, context);
  if (result == 0)
    tables.completions.in((*made)->ops, [](fi_ops_cq& table) {
      table.read = read_completions;
      table.readerr = read_failure;
    });
  return result;
}

int close_domain(fid* object) {
  {
    const std::lock_guard lock(books.mutex);
    for (const auto& [descriptor, memory] : books.memory)
      require(&memory->domain->fid != object, "a domain is closed before its memory");
    for (const auto& [endpoint, domain] : books.endpoints)
      require(&domain->fid != object, "a domain is closed before its endpoints");
  }
  return tables.domain_object->close(object);
}

int open_domain(fid_fabric* fabric, fi_info* info, fid_domain** made, void* context) {
  const TrueName named(*info);
  const int result = tables.fabric->domain(fabric, info, made, context);
  if (result != 0) return result;
  fid_domain* const domain = *made;
  tables.domain.in(domain->ops, [](fi_ops_domain& table) {
    table.endpoint = open_endpoint;
    table.cq_open = open_completions;
  });
  tables.memory.in(domain->mr, [](fi_ops_mr& table) {
    table.reg = register_memory;
    table.regv = nullptr;  // not used, and not checked
    table.regattr = nullptr;
  });
  tables.domain_object.in(domain->fid.ops, [](fi_ops& table) { table.close = close_domain; });
  return result;
}

int open_passive(fid_fabric* fabric, fi_info* info, fid_pep** made, void* context) {
  const TrueName named(*info);
  return tables.fabric->passive_ep(fabric, info, made, context);
}

bool is_verbs(const char* name) { return name != nullptr && std::strcmp(name, "verbs") == 0; }

}  // namespace

// ---- the library's own functions ----

extern "C" {

int fi_getinfo(std::uint32_t version, const char* node, const char* service, std::uint64_t flags,
               const fi_info* hints, fi_info** found) {
  const auto call = true_function<decltype(&::fi_getinfo)>("fi_getinfo");
  if (hints == nullptr || !is_verbs(hints->fabric_attr->prov_name))
    return call(version, node, service, flags, hints, found);
  constexpr int mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  require((hints->domain_attr->mr_mode & mode) == mode,
          "the program does not do what verbs demands of registered memory");
  const TrueName named(const_cast<fi_info&>(*hints));
  const int result = call(version, node, service, flags, hints, found);
  if (result != 0) return result;
  for (fi_info* info = *found; info != nullptr; info = info->next) {
    std::free(std::exchange(info->fabric_attr->prov_name, ::strdup("verbs")));
    info->domain_attr->mr_mode = mode;
    info->ep_attr->max_msg_size = max_message;
    info->tx_attr->iov_limit = info->rx_attr->iov_limit = max_parts;
  }
  return result;
}

void fi_freeinfo(fi_info* info) { true_function<decltype(&::fi_freeinfo)>("fi_freeinfo")(info); }

fi_info* fi_dupinfo(const fi_info* info) {
  return true_function<decltype(&::fi_dupinfo)>("fi_dupinfo")(info);
}

int fi_fabric(fi_fabric_attr* attributes, fid_fabric** made, void* context) {
  const auto call = true_function<decltype(&::fi_fabric)>("fi_fabric");
  if (!is_verbs(attributes->prov_name)) return call(attributes, made, context);
  char* const name = std::exchange(attributes->prov_name, TrueName::name.data());
  const int result = call(attributes, made, context);
  attributes->prov_name = name;
  if (result == 0)
    tables.fabric.in((*made)->ops, [](fi_ops_fabric& table) {
      table.domain = open_domain;
      table.passive_ep = open_passive;
    });
  return result;
}

const char* fi_strerror(int number) {
  return true_function<decltype(&::fi_strerror)>("fi_strerror")(number);
}

}  // extern "C"
