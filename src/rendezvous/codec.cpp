// SPDX-License-Identifier: Apache-2.0
// The verifier of FlatBuffers checks offsets, but not values. So each value is checked where it is
// read, and later code can rely on it.
#include "rendezvous/message.hpp"

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>

#include "base/enumerators.hpp"
#include "base/flatbuffer_codec.hpp"
#include "rendezvous_generated.h"

namespace kolo::internal::rendezvous {

// The correspondence between the structs of message.hpp and the tables of rendezvous.fbs, with one
// overload per struct. Reading and writing both follow these lists, so that neither side can forget
// a field. Only the return types are used, so the overloads are never defined.

auto layout_of(const Hello*)
    -> Fields<wire::Hello, &Hello::role, &Hello::process, &Hello::host, &Hello::machine,
              &Hello::pid, &Hello::wanted_rank, &Hello::slots, &Hello::version, &Hello::job,
              &Hello::stands_by, &Hello::votes>;
auto layout_of(const HandshakeStep*) -> Fields<wire::HandshakeStep, &HandshakeStep::bytes>;
auto layout_of(const Join*) -> Fields<wire::Join, &Join::generation, &Join::commit, &Join::orderly>;
auto layout_of(const Contribution*) -> Fields<wire::Contribution, &Contribution::generation,
                                              &Contribution::sequence, &Contribution::payload>;
auto layout_of(const Begun*) -> Fields<wire::Begun, &Begun::generation>;
auto layout_of(const Completed*) -> Fields<wire::Completed, &Completed::generation>;
auto layout_of(const Leave*) -> Fields<wire::Leave, &Leave::generation>;
auto layout_of(const Failed*) -> Fields<wire::Failed, &Failed::reason>;
auto layout_of(const SessionFailed*) -> Fields<wire::SessionFailed, &SessionFailed::reason>;
auto layout_of(const RanksMissed*) -> Fields<wire::RanksMissed, &RanksMissed::generation,
                                             &RanksMissed::ranks, &RanksMissed::operation>;
auto layout_of(const FailureReport*)
    -> Fields<wire::FailureReport, &FailureReport::generation, &FailureReport::ranks,
              &FailureReport::reason, &FailureReport::stalled>;
auto layout_of(const Exited*) -> Fields<wire::Exited, &Exited::process, &Exited::status,
                                        &Exited::detail, &Exited::last_lines, &Exited::by_signal>;
auto layout_of(const Removal*) -> Fields<wire::Removal, &Removal::reason>;
auto layout_of(const Keepalive*) -> Fields<wire::Keepalive, &Keepalive::count>;
auto layout_of(const Held*) -> Fields<wire::Held, &Held::process, &Held::rank, &Held::slot>;
auto layout_of(const Vote*) -> Fields<wire::Vote, &Vote::voters, &Vote::server, &Vote::standby,
                                      &Vote::processes, &Vote::silence, &Vote::has_ended>;
auto layout_of(const Standing*) -> Fields<wire::Standing, &Standing::generation, &Standing::age,
                                          &Standing::members, &Standing::completed>;
auto layout_of(const Electorate*)
    -> Fields<wire::Electorate, &Electorate::voters, &Electorate::server, &Electorate::standby>;
auto layout_of(const Succession*) -> Fields<wire::Succession, &Succession::reason>;
auto layout_of(const Welcome*)
    -> Fields<wire::Welcome, &Welcome::lease, &Welcome::process, &Welcome::elastic>;
auto layout_of(const Refusal*)
    -> Fields<wire::Refusal, &Refusal::reason, &Refusal::retry, &Refusal::guards_job>;
auto layout_of(const Member*) -> Fields<wire::Member, &Member::process, &Member::host,
                                        &Member::machine, &Member::pid, &Member::commit>;
auto layout_of(const Roster*) -> Fields<wire::Roster, &Roster::generation, &Roster::members>;
auto layout_of(const Interruption*) -> Fields<wire::Interruption, &Interruption::generation,
                                              &Interruption::ranks, &Interruption::reason>;
auto layout_of(const Payload*) -> Fields<wire::Payload, &Payload::bytes>;
auto layout_of(const Result*)
    -> Fields<wire::Result, &Result::generation, &Result::sequence, &Result::payloads>;
auto layout_of(const Announcement*)
    -> Fields<wire::Announcement, &Announcement::generation, &Announcement::reason>;
auto layout_of(const Launch*)
    -> Fields<wire::Launch, &Launch::process, &Launch::rank, &Launch::size, &Launch::local_rank,
              &Launch::local_size, &Launch::restarts>;
auto layout_of(const Start*) -> Fields<wire::Start, &Start::launches>;
auto layout_of(const Kill*) -> Fields<wire::Kill, &Kill::process, &Kill::reason>;
auto layout_of(const End*)
    -> Fields<wire::End, &End::status, &End::reason, &End::restarts, &End::superseded>;
auto layout_of(const Signal*) -> Fields<wire::Signal, &Signal::number>;

template <typename Item>
using LayoutOf = decltype(layout_of(static_cast<Item*>(nullptr)));
template <typename Item>
using TableOf = typename LayoutOf<Item>::Table;

namespace {

using flatbuffers::Offset;

void require(bool holds, const char* otherwise) {
  if (!holds) throw ProtocolError(otherwise);
}

class RendezvousWriter : public TableWriter<RendezvousWriter, LayoutOf> {
 public:
  using TableWriter::write;

  template <typename Body>
  Bytes write_envelope(const Body& body) {
    const auto table = make_table(body);
    return finish(
        wire::CreateEnvelope(out_, wire::BodyTraits<TableOf<Body>>::enum_value, table.Union()));
  }

  Offset<flatbuffers::String> write(const std::string& text) {
    return text.empty() ? 0 : out_.CreateString(text.data(), std::min(text.size(), max_text));
  }
  VectorOffset<std::uint8_t> write(const Bytes& bytes) {
    return bytes.empty() ? 0
                         : out_.CreateVector(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                                             bytes.size());
  }
};

/// Rejects values that the schema allows but no correct sender sends.
class RendezvousChecks {
 public:
  static void check(const Hello& hello) {
    require_name(hello.host);
    require_name(hello.machine);
    require_name(hello.version);
    require_name(hello.job);
    require(hello.wanted_rank >= -1 && hello.wanted_rank < max_ranks, "a rank that no job has");
    require(hello.slots >= 0 && hello.slots <= max_ranks, "slots that no host has");
  }
  static void check(const HandshakeStep& step) {
    require(!step.bytes.empty() && step.bytes.size() <= transport::Handshake::max_bytes,
            "a step of another handshake");
  }
  static void check(const Contribution& part) {
    require(part.payload.size() <= max_payload, "a payload beyond all bounds");
  }
  static void check(const FailureReport& report) { require_ranks(report.ranks); }
  static void check(const RanksMissed& missed) { require_ranks(missed.ranks); }
  static void check(const Interruption& interruption) { require_ranks(interruption.ranks); }
  static void check(const Exited& exited) {
    require(exited.status >= 0 && exited.status < 256, "a status that no process ends with");
  }
  static void check(const Held& held) {
    require(held.process != 0, "a process without a number");
    require(held.rank >= -1 && held.rank < max_ranks, "a rank that no job has");
    require(held.slot >= -1 && held.slot < max_ranks, "a slot that no host has");
  }
  static void check(const Vote& vote) {
    require(vote.silence.count() >= 0, "a time that no agent waits");
  }
  static void check(const Welcome& welcome) {
    require(welcome.lease.count() >= 0, "a lease that no server gives");
  }
  static void check(const Refusal& refusal) {
    require(refusal.retry.count() >= 0, "a time that no server gives");
  }
  static void check(const Member& member) {
    require(member.process != 0, "a member that is no process");
    require_name(member.host);
    require_name(member.machine);
  }
  static void check(const Roster& roster) {
    require(roster.generation != 0 && !roster.members.empty(), "a generation of nobody");
    require(roster.members.size() <= max_ranks, "more members than a generation has");
  }
  static void check(const Launch& launch) {
    require(launch.process != 0, "a process without a number");
    require(launch.rank >= -1 && launch.rank < max_ranks, "a rank that no job has");
    require(launch.size >= 0 && launch.size <= max_ranks, "a size that no job has");
    require(launch.local_rank >= 0 && launch.local_rank < max_ranks, "a slot that no host has");
    require(launch.local_size >= 0 && launch.local_size <= max_ranks, "a size that no host has");
    require(launch.restarts >= 0, "a number of restarts that no job has");
  }
  static void check(const End& end) {
    require(end.status >= 0 && end.status < 256, "a status that no job ends with");
  }
  static void check(const Signal& signal) {
    require(signal.number > 0 && signal.number <= max_signal, "a signal that there is not");
  }
  template <typename Item>
  static void check(const Item& /*item*/) {}

 private:
  static constexpr int max_signal = 64;

  static void require_name(const std::string& name) {
    require(name.size() <= max_name, "a name beyond all bounds");
  }
  static void require_ranks(const std::vector<std::int32_t>& ranks) {
    for (const std::int32_t rank : ranks)
      require(rank >= 0 && rank < max_ranks, "a rank that no generation has");
  }
};

/// Has one overload of `read` for each kind of field. An absent field leaves the member as it is.
class RendezvousReader : RendezvousChecks {
 public:
  template <typename Item>
  static void read(const TableOf<Item>* in, Item& out) {
    const auto members = LayoutOf<Item>::of(out);
    [&]<std::size_t... i>(std::index_sequence<i...> /*fields*/) {
      (read(in->template get_field<i>(), std::get<i>(members)), ...);
    }
    (std::make_index_sequence<std::tuple_size_v<decltype(members)>>{});
    check(out);
  }

 private:
  template <typename Number>
    requires std::is_arithmetic_v<Number>
  static void read(Number in, Number& out) { out = in; }
  static void read(std::uint8_t in, Role& out) {
    require(is_enumerator<Role>(in), "a role that nobody has");
    out = static_cast<Role>(in);
  }
  static void read(std::int64_t in, std::chrono::nanoseconds& out) {
    out = std::chrono::nanoseconds(in);
  }
  static void read(const flatbuffers::String* in, std::string& out) {
    if (in == nullptr) return;
    require(in->size() <= max_text, "a text beyond all bounds");
    out = in->str();
  }
  static void read(const flatbuffers::Vector<std::uint8_t>* in, Bytes& out) {
    if (in == nullptr) return;
    const auto* begin = reinterpret_cast<const std::byte*>(in->data());
    out.assign(begin, begin + in->size());
  }
  /// Checks the alignment of the elements, since the verifier checks only that of the vector.
  template <typename Number>
    requires std::is_arithmetic_v<Number>
  static void read(const flatbuffers::Vector<Number>* in, std::vector<Number>& out) {
    if (in == nullptr) return;
    require(in->size() <= max_ranks, "a list beyond all bounds");
    require(in->size() == 0 || reinterpret_cast<std::uintptr_t>(in->Data()) % alignof(Number) == 0,
            "a list of numbers that no encoder places there");
    out.assign(in->begin(), in->end());
  }
  template <typename Item, typename Table>
  static void read(const flatbuffers::Vector<Offset<Table>>* in, std::vector<Item>& out) {
    if (in == nullptr) return;
    require(in->size() <= max_ranks, "a list beyond all bounds");
    out.reserve(in->size());
    for (const Table* table : *in) read(table, out.emplace_back());
  }
};

template <typename... Bodies>
Message read_body(const wire::Envelope& in, std::type_identity<std::variant<Bodies...>> /*all*/) {
  Message out;
  const auto read_if = [&]<typename Body>(std::type_identity<Body> /*alternative*/) {
    using Table = TableOf<Body>;
    if (in.body_type() != wire::BodyTraits<Table>::enum_value) return false;
    RendezvousReader::read(in.body_as<Table>(), out.emplace<Body>());
    return true;
  };
  require((read_if(std::type_identity<Bodies>{}) || ...), "a message of an unknown kind");
  return out;
}

}  // namespace

Bytes encode(const Message& message) {
  RendezvousWriter writer;
  return std::visit([&](const auto& body) { return writer.write_envelope(body); }, message);
}

Message decode(std::span<const std::byte> bytes) {
  constexpr flatbuffers::uoffset_t max_depth = 16;
  return read_verified<wire::Envelope, ProtocolError>(
      bytes, "a message", max_depth, [](const wire::Envelope& envelope) {
        return read_body(envelope, std::type_identity<Message>{});
      });
}

}  // namespace kolo::internal::rendezvous
