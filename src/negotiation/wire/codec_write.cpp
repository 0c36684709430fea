// The half of the codec that makes bytes.
#include <flatbuffers/flatbuffers.h>

#include <utility>

#include "negotiation/wire/codec.hpp"
#include "wire_generated.h"

namespace kolo::internal::negotiation {
namespace {

using flatbuffers::Offset;

template <typename Enumeration>
std::uint8_t number_of(Enumeration value) {
  return static_cast<std::uint8_t>(value);
}

/// One overload for each part of a message. A part is written before the table that holds it.
class MessageWriter {
  // First, since their types are deduced from what they do.
  template <typename Item>
  auto write_all(const std::vector<Item>& items) {
    std::vector<decltype(write(items.front()))> offsets;
    offsets.reserve(items.size());
    for (const Item& item : items) offsets.push_back(write(item));
    return out_.CreateVector(offsets);
  }

  /// The table of the alternative that `content` holds, and the schema's number of that table.
  template <typename Type, template <typename> typename Traits, typename Content>
  std::pair<Type, Offset<void>> write_union(const Content& content) {
    return std::visit(
        [&]<typename Body>(const Body& body) -> std::pair<Type, Offset<void>> {
          const auto table = write(body);
          return {traits_of<Traits>(table), table.Union()};
        },
        content);
  }
  template <template <typename> typename Traits, typename Table>
  static auto traits_of(Offset<Table> /*table*/) {
    return Traits<Table>::enum_value;
  }

 public:
  template <typename Root>
  std::vector<std::byte> finish(Offset<Root> root) {
    out_.Finish(root);
    const auto* begin = reinterpret_cast<const std::byte*>(out_.GetBufferPointer());
    return {begin, begin + out_.GetSize()};
  }

  Offset<wire::ControlMessage> write(std::uint64_t session, const MessageBody& content) {
    const auto [type, body] = write_union<wire::MessageBody, wire::MessageBodyTraits>(content);
    return wire::CreateControlMessage(out_, session, type, body);
  }

  Offset<wire::RankStatus> write(const RankStatus& status) {
    const auto listed = write_all(status.operations);
    const auto batch = out_.CreateString(status.batch);
    const auto awaits = out_.CreateString(status.awaits);
    const auto awaited = write(status.awaited);
    const auto ended = status.ended ? write(*status.ended) : Offset<wire::Failure>();
    return wire::CreateRankStatus(out_, status.rank, status.process, number_of(status.state),
                                  status.heard.count(), status.idle.count(), status.submitted,
                                  status.waits, status.blocked, status.pending, listed, batch,
                                  awaits, awaited, ended);
  }

 private:
  // ---- parts of several messages ----

  Offset<flatbuffers::Vector<const wire::RankRange*>> write(const RankSet& ranks) {
    std::vector<wire::RankRange> ranges;
    ranges.reserve(ranks.ranges().size());
    for (const RankSet::Range& range : ranks.ranges()) ranges.emplace_back(range.first, range.last);
    return out_.CreateVectorOfStructs(ranges);
  }

  /// What is empty takes no space in a message.
  Offset<flatbuffers::Vector<const wire::RankRange*>> write_if_any(const RankSet& ranks) {
    return ranks.empty() ? 0 : write(ranks);
  }

  Offset<wire::Key> write(const Key& key) {
    const auto name = key.named() ? out_.CreateString(key.name) : 0;
    return wire::CreateKey(out_, name, key.number, key.set);
  }

  Offset<wire::TensorSpec> write(const TensorSpec& tensor) {
    const auto shape = out_.CreateVector(tensor.shape.lengths().data(), tensor.shape.dimensions());
    return wire::CreateTensorSpec(out_, number_of(tensor.dtype), shape);
  }

  Offset<wire::Descriptor> write(const Descriptor& descriptor) {
    const auto tensors = write_all(descriptor.tensors);
    const auto ranks = write_if_any(descriptor.ranks);
    return wire::CreateDescriptor(
        out_, number_of(descriptor.type), tensors, number_of(descriptor.op), descriptor.root,
        descriptor.prescale, descriptor.postscale, number_of(descriptor.compression),
        number_of(descriptor.average_over), descriptor.alone, number_of(descriptor.device.type),
        descriptor.device.index, descriptor.step, ranks, descriptor.removed);
  }

  Offset<wire::Failure> write(const Failure& failure) {
    const auto message = out_.CreateString(failure.message);
    const auto tensor = failure.tensor.empty() ? 0 : out_.CreateString(failure.tensor);
    return wire::CreateFailure(out_, number_of(failure.kind), message, tensor,
                               write(failure.ranks));
  }

  Offset<wire::Departure> write(const Departure& departure) {
    return wire::CreateDeparture(out_, departure.rank, out_.CreateString(departure.reason));
  }

  Offset<wire::Variant> write(const Variant& variant) {
    const auto descriptor = write(variant.descriptor);
    return wire::CreateVariant(out_, descriptor, write(variant.ranks));
  }

  Offset<wire::Readiness> write(const Readiness& readiness) {
    const auto key = write(readiness.key);
    const auto variants = write_all(readiness.variants);
    return wire::CreateReadiness(out_, key, variants, write(readiness.others));
  }

  Offset<wire::Lag> write(const Lag& lag) {
    const auto key = write(lag.key);
    return wire::CreateLag(out_, key, number_of(lag.type), write(lag.submitted),
                           lag.waited.count());
  }

  Offset<wire::WaitingOperation> write(const WaitingOperation& operation) {
    return wire::CreateWaitingOperation(out_, write(operation.key), number_of(operation.type),
                                        operation.waited.count());
  }

  // ---- bodies of messages ----

  Offset<wire::ReadinessReport> write(const ReadinessReport& report) {
    const auto joins = out_.CreateVector(report.joins);
    const auto slots = out_.CreateVector(report.slots.words());
    const auto ready = write_all(report.ready);
    const auto departures = write_all(report.departures);
    const auto lags = write_all(report.lags);
    const auto statuses = report.statuses.empty() ? 0 : write_all(report.statuses);
    return wire::CreateReadinessReport(out_, joins, slots, ready, departures, lags, report.epoch,
                                       statuses);
  }

  Offset<wire::LogUpdate> write(const LogUpdate& update) {
    return wire::CreateLogUpdate(out_, write_all(update.entries));
  }

  Offset<wire::Heartbeat> write(const Heartbeat& heartbeat) {
    return wire::CreateHeartbeat(out_, heartbeat.unresponsive_ancestor, heartbeat.interval.count());
  }

  // ---- entries of the log ----

  Offset<wire::Entry> write(const Entry& entry) {
    const auto [type, body] = write_union<wire::EntryBody, wire::EntryBodyTraits>(entry.body);
    return wire::CreateEntry(out_, entry.sequence, type, body);
  }

  Offset<wire::BatchEntry> write(const BatchEntry& batch) {
    const auto absent = write_if_any(batch.absent);
    const auto slots = out_.CreateVector(batch.slots.words());
    return wire::CreateBatchEntry(out_, batch.set, absent, slots, write_all(batch.uncached));
  }

  Offset<wire::UncachedOperation> write(const UncachedOperation& operation) {
    const auto key = write(operation.key);
    const auto descriptor = write(operation.descriptor);
    return wire::CreateUncachedOperation(out_, key, descriptor,
                                         operation.slot ? std::int64_t{*operation.slot} : -1);
  }

  Offset<wire::MismatchEntry> write(const MismatchEntry& entry) {
    const auto conflict = write(entry.conflict);
    return wire::CreateMismatchEntry(out_, conflict, write(entry.absent));
  }

  Offset<wire::JoinEntry> write(const JoinEntry& entry) {
    return wire::CreateJoinEntry(out_, entry.last);
  }

  Offset<wire::AddSetEntry> write(const AddSetEntry& entry) {
    const auto key = write(entry.key);
    return wire::CreateAddSetEntry(out_, key, entry.set, write(entry.ranks));
  }

  Offset<wire::RemoveSetEntry> write(const RemoveSetEntry& entry) {
    return wire::CreateRemoveSetEntry(out_, write(entry.key), entry.set);
  }

  Offset<wire::StallEntry> write(const StallEntry& entry) {
    const auto lag = write(entry.lag);
    const auto missing = write(entry.missing);
    return wire::CreateStallEntry(out_, lag, missing, out_.CreateString(entry.details));
  }

  Offset<wire::InquiryEntry> write(const InquiryEntry& entry) {
    return wire::CreateInquiryEntry(out_, write(entry.key));
  }

  Offset<wire::EndEntry> write(const EndEntry& /*entry*/) { return wire::CreateEndEntry(out_); }

  Offset<wire::PlanEntry> write(const PlanEntry& entry) {
    return wire::CreatePlanEntry(out_, entry.epoch, write_all(entry.batches), entry.usual.count());
  }

  Offset<wire::PlanBatch> write(const std::vector<PlanItem>& batch) {
    return wire::CreatePlanBatch(out_, write_all(batch));
  }

  Offset<wire::PlanItem> write(const PlanItem& item) {
    const auto key = write(item.key);
    const auto descriptor = write(item.descriptor);
    return wire::CreatePlanItem(out_, key, descriptor, item.number_stride, item.step_stride);
  }

  flatbuffers::FlatBufferBuilder out_{};
};

}  // namespace

std::vector<std::byte> encode(std::uint64_t session, const MessageBody& body) {
  MessageWriter writer;
  return writer.finish(writer.write(session, body));
}

std::vector<std::byte> encode_status(const RankStatus& status) {
  MessageWriter writer;
  return writer.finish(writer.write(status));
}

}  // namespace kolo::internal::negotiation
