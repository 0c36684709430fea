// SPDX-License-Identifier: Apache-2.0
// A library that exports what it must not, for exported_symbols.sh to find: internal names, a name
// that no public header has, and one of another library.
namespace kolo {

void allreduce();
void allreduce() {}
void not_in_any_header();
void not_in_any_header() {}

namespace internal {

void not_marked();
void not_marked() {}

namespace session {

void leak();
void leak() {}

}  // namespace session

}  // namespace internal

}  // namespace kolo

namespace fmt {

void leak();
void leak() {}

}  // namespace fmt
