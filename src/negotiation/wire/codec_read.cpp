// The half of the codec that reads bytes. FlatBuffers' verifier has checked offsets and required
// fields, not values: each value is checked where it is read, so that what follows may rely on it.
#include <flatbuffers/flatbuffers.h>

#include <cmath>
#include <limits>
#include <string>

#include "base/enumerators.hpp"
#include "negotiation/wire/codec.hpp"
#include "wire_generated.h"

namespace kolo::internal::negotiation {
namespace {

template <typename T>
using Vector = flatbuffers::Vector<T>;

// ---- values ----

SetId read_set(std::int64_t set) {
  if (set < 0) throw ProtocolError("a process set without a number");
  return set;
}

int read_rank(std::int32_t rank) {
  if (rank < 0) throw ProtocolError("a rank without a number");
  return rank;
}

double read_scale(double scale) {
  if (!std::isfinite(scale)) throw ProtocolError("a scale that is not finite");
  return scale;
}

std::chrono::milliseconds read_milliseconds(std::int64_t count) {
  constexpr std::int64_t max = 1'000'000'000'000;  // 30 years, so that sums of some fit
  if (count < 0 || count > max) throw ProtocolError("a time that nobody waits");
  return std::chrono::milliseconds(count);
}

template <typename Enumeration>
Enumeration read_enum(std::uint8_t value, const char* what) {
  if (!is_enumerator<Enumeration>(value))
    throw ProtocolError(std::string("unknown ") + what + ' ' + std::to_string(value));
  return static_cast<Enumeration>(value);
}

/// The verifier looks at where a vector begins, not at where its elements do.
template <typename T>
void require_aligned(const Vector<T>& vector) {
  if (vector.size() > 0 && reinterpret_cast<std::uintptr_t>(vector.Data()) % alignof(T) != 0)
    throw ProtocolError("a list of numbers that no encoder places there");
}

// ---- parts of several messages; null, where it may be, is what is empty ----

/// One overload for each table, so that their order does not matter.
struct MessageReader {
  template <typename Item, typename Table>
  static void read_all(std::vector<Item>& into, const Vector<flatbuffers::Offset<Table>>* tables) {
    if (tables == nullptr) return;
    into.reserve(tables->size());
    for (const Table* table : *tables) into.push_back(read(*table));
  }

  static std::string read(const flatbuffers::String* text) {
    return text == nullptr ? "" : text->str();
  }

  static RankSet read(const Vector<const wire::RankRange*>* ranges) {
    RankSet ranks;
    if (ranges == nullptr) return ranks;
    for (const wire::RankRange* range : *ranges) {
      // The size of a world is an int too: no rank is the greatest int.
      if (range->first() < 0 || range->last() < range->first() ||
          range->last() == std::numeric_limits<std::int32_t>::max())
        throw ProtocolError("a range of ranks that is none");
      ranks.insert(RankSet::range(range->first(), range->last()));
    }
    return ranks;
  }

  static CacheSlotSet read(const Vector<std::uint64_t>* words) {
    if (words == nullptr) return {};
    require_aligned(*words);
    return CacheSlotSet(std::vector<std::uint64_t>(words->begin(), words->end()));
  }

  static Key read(const wire::Key& in) {
    return {read(in.name()), in.number(), read_set(in.set())};
  }

  /// The number of elements fits into an integer, also in bytes.
  static Shape read(const Vector<std::int64_t>& in) {
    constexpr std::int64_t max = std::int64_t{1} << 59;
    require_aligned(in);
    std::vector<std::int64_t> lengths(in.begin(), in.end());
    std::int64_t elements = 1;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      if (i == 0 && lengths[i] == any_length) continue;
      if (lengths[i] < 0 || (lengths[i] > 0 && elements > max / lengths[i]))
        throw ProtocolError("a shape that no tensor has");
      elements *= lengths[i];
    }
    return Shape(lengths);
  }

  static TensorSpec read(const wire::TensorSpec& in) {
    TensorSpec tensor{read_enum<DType>(in.dtype(), "dtype"), {}};
    if (in.shape() != nullptr) tensor.shape = read(*in.shape());
    return tensor;
  }

  static Descriptor read(const wire::Descriptor& in) {
    Descriptor descriptor;
    descriptor.type = read_enum<OperationType>(in.type(), "operation");
    read_all(descriptor.tensors, in.tensors());
    descriptor.op = read_enum<ReduceOp>(in.op(), "reduce op");
    descriptor.root = in.root();
    descriptor.prescale = read_scale(in.prescale());
    descriptor.postscale = read_scale(in.postscale());
    descriptor.compression = read_enum<Compression>(in.compression(), "compression");
    descriptor.average_over = read_enum<AverageOver>(in.average_over(), "divisor");
    descriptor.alone = in.alone();
    descriptor.device = {read_enum<DeviceType>(in.device_type(), "device"), in.device_index()};
    descriptor.step = in.step();
    descriptor.ranks = read(in.ranks());
    descriptor.removed = in.removed();
    return descriptor;
  }

  /// An error of a rank's own never travels: to others it is a rank that has left.
  static Failure read(const wire::Failure& in) {
    Failure failure{read_enum<FailureKind>(in.kind(), "failure"), read(in.message()),
                    read(in.tensor()), read(in.ranks())};
    if (failure.kind == FailureKind::backend)
      throw ProtocolError("a failure that no rank tells others");
    return failure;
  }

  static Departure read(const wire::Departure& in) {
    return {read_rank(in.rank()), read(in.reason())};
  }

  static Variant read(const wire::Variant& in) {
    return {read(*in.descriptor()), read(in.ranks())};
  }

  static Readiness read(const wire::Readiness& in) {
    Readiness readiness{read(*in.key()), {}, read(in.others())};
    read_all(readiness.variants, in.variants());
    if (readiness.variants.empty()) throw ProtocolError("readiness without a descriptor");
    return readiness;
  }

  static Lag read(const wire::Lag& in) {
    return {read(*in.key()), read_enum<OperationType>(in.type(), "operation"), read(in.submitted()),
            read_milliseconds(in.waited_ms())};
  }

  static WaitingOperation read(const wire::WaitingOperation& in) {
    return {read(*in.key()), read_enum<OperationType>(in.type(), "operation"),
            read_milliseconds(in.waited_ms())};
  }

  static RankStatus read(const wire::RankStatus& in) {
    RankStatus status{.rank = in.rank(),
                      .process = in.process(),
                      .state = read_enum<ProcessState>(in.state(), "state"),
                      .heard = read_milliseconds(in.heard_ms()),
                      .idle = read_milliseconds(in.idle_ms()),
                      .submitted = in.submitted(),
                      .waits = in.waits(),
                      .blocked = in.blocked(),
                      .pending = in.pending(),
                      .batch = read(in.batch()),
                      .awaits = read(in.awaits()),
                      .awaited = read(in.awaited())};
    read_all(status.operations, in.operations());
    if (in.ended() != nullptr) status.ended = read(*in.ended());
    return status;
  }

  // ---- entries of the log ----

  static BatchEntry read(const wire::BatchEntry& in) {
    BatchEntry batch{read_set(in.set()), read(in.absent()), read(in.slots())};
    read_all(batch.uncached, in.uncached());
    return batch;
  }

  static UncachedOperation read(const wire::UncachedOperation& in) {
    UncachedOperation operation{read(*in.key()), read(*in.descriptor())};
    if (in.slot() > std::numeric_limits<CacheSlot>::max()) throw ProtocolError("a slot beyond all");
    if (in.slot() >= 0) operation.slot = static_cast<CacheSlot>(in.slot());
    return operation;
  }

  static MismatchEntry read(const wire::MismatchEntry& in) {
    return {read(*in.conflict()), read(in.absent())};
  }
  static JoinEntry read(const wire::JoinEntry& in) { return {read_rank(in.last())}; }
  static AddSetEntry read(const wire::AddSetEntry& in) {
    return {read(*in.key()), read_set(in.set()), read(in.ranks())};
  }
  static RemoveSetEntry read(const wire::RemoveSetEntry& in) {
    return {read(*in.key()), read_set(in.set())};
  }
  static StallEntry read(const wire::StallEntry& in) {
    return {read(*in.lag()), read(in.missing()), read(in.details())};
  }
  static InquiryEntry read(const wire::InquiryEntry& in) { return {read(*in.key())}; }
  static EndEntry read(const wire::EndEntry& /*in*/) { return {}; }

  static PlanItem read(const wire::PlanItem& in) {
    return {read(*in.key()), read(*in.descriptor()), in.number_stride(), in.step_stride()};
  }

  static std::vector<PlanItem> read(const wire::PlanBatch& in) {
    std::vector<PlanItem> items;
    read_all(items, in.items());
    return items;
  }

  static PlanEntry read(const wire::PlanEntry& in) {
    if (in.usual_ns() < 0) throw ProtocolError("a plan that takes less than no time");
    PlanEntry entry{in.epoch(), {}, std::chrono::nanoseconds(in.usual_ns())};
    read_all(entry.batches, in.batches());
    return entry;
  }

  static EntryBody read_body(const wire::Entry& in) {
    switch (in.body_type()) {
      case wire::EntryBody_BatchEntry: return read(*in.body_as_BatchEntry());
      case wire::EntryBody_MismatchEntry: return read(*in.body_as_MismatchEntry());
      case wire::EntryBody_JoinEntry: return read(*in.body_as_JoinEntry());
      case wire::EntryBody_AddSetEntry: return read(*in.body_as_AddSetEntry());
      case wire::EntryBody_RemoveSetEntry: return read(*in.body_as_RemoveSetEntry());
      case wire::EntryBody_Departure: return read(*in.body_as_Departure());
      case wire::EntryBody_StallEntry: return read(*in.body_as_StallEntry());
      case wire::EntryBody_InquiryEntry: return read(*in.body_as_InquiryEntry());
      case wire::EntryBody_EndEntry: return read(*in.body_as_EndEntry());
      case wire::EntryBody_PlanEntry: return read(*in.body_as_PlanEntry());
      default: throw ProtocolError("unknown kind of log entry");
    }
  }

  static Entry read(const wire::Entry& in) { return {in.sequence(), read_body(in)}; }

  // ---- bodies of messages ----

  static ReadinessReport read(const wire::ReadinessReport& in) {
    ReadinessReport report;
    report.epoch = in.epoch();
    report.slots = read(in.slots());
    if (in.joins() != nullptr)
      for (const std::int32_t rank : *in.joins()) report.joins.push_back(read_rank(rank));
    read_all(report.ready, in.ready());
    read_all(report.departures, in.departures());
    read_all(report.lags, in.lags());
    read_all(report.statuses, in.statuses());
    return report;
  }

  static LogUpdate read(const wire::LogUpdate& in) {
    LogUpdate update;
    read_all(update.entries, in.entries());
    return update;
  }

  static Heartbeat read(const wire::Heartbeat& in) {
    // A longer interval would keep a rank from noticing the silence that follows.
    if (in.unresponsive_ancestor() < -1 || in.interval_ns() < 0 ||
        in.interval_ns() > Heartbeat::max_interval.count())
      throw ProtocolError("a heartbeat that no rank sends");
    return {in.unresponsive_ancestor(), std::chrono::nanoseconds(in.interval_ns())};
  }

  /// The other kinds concern single operations, and are no reason to end a session.
  static Failure read_session_failure(const wire::Failure& in) {
    Failure failure = read(in);
    if (failure.kind != FailureKind::peer_left && failure.kind != FailureKind::stalled)
      throw ProtocolError("a failure that ends no session");
    return failure;
  }

  static MessageBody read_body(const wire::ControlMessage& in) {
    switch (in.body_type()) {
      case wire::MessageBody_ReadinessReport: return read(*in.body_as_ReadinessReport());
      case wire::MessageBody_LogUpdate: return read(*in.body_as_LogUpdate());
      case wire::MessageBody_Heartbeat: return read(*in.body_as_Heartbeat());
      case wire::MessageBody_Failure: return read_session_failure(*in.body_as_Failure());
      default: throw ProtocolError("unknown kind of control message");
    }
  }
};

/// Calls `read_root` with the verified root of the bytes, which are copied first if FlatBuffers may
/// not read them where they lie.
template <typename Root, typename Read>
auto read_verified(std::span<const std::byte> bytes, const char* what, Read read_root) {
  std::vector<std::byte> aligned;
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % sizeof(std::uint64_t) != 0) {
    aligned.assign(bytes.begin(), bytes.end());
    bytes = aligned;
  }
  // Each table has four bytes of its own, as ours do, which share none: what is read stays in
  // proportion to what came.
  constexpr flatbuffers::uoffset_t max_depth = 64;
  constexpr std::size_t min_table = 4;
  const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  flatbuffers::Verifier verifier(data, bytes.size(), max_depth,
                                 static_cast<flatbuffers::uoffset_t>(bytes.size() / min_table));
  if (bytes.empty() || !verifier.VerifyBuffer<Root>(nullptr))
    throw ProtocolError(std::string(what) + " of " + std::to_string(bytes.size()) +
                        " bytes is damaged");
  return read_root(*flatbuffers::GetRoot<Root>(data));
}

}  // namespace

ControlMessage decode(std::span<const std::byte> bytes) {
  return read_verified<wire::ControlMessage>(
      bytes, "a control message", [](const wire::ControlMessage& in) {
        return ControlMessage{in.session(), MessageReader::read_body(in)};
      });
}

RankStatus decode_status(std::span<const std::byte> bytes) {
  return read_verified<wire::RankStatus>(
      bytes, "the status of a rank",
      [](const wire::RankStatus& in) { return MessageReader::read(in); });
}

}  // namespace kolo::internal::negotiation
