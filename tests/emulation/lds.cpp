// LDS: every access is held against those of other threads that no barrier is between, in order and in vectors.
#include <cstring>

#include "machine.h"

namespace tsr::emulation {
namespace {

// The words that an access of kWords begins with, in their group.
template <int kWords>
using Times = uint32_t __attribute__((ext_vector_type(kWords)));
template <int kWords>
using Threads = int16_t __attribute__((ext_vector_type(kWords)));

template <class V, class T>
V load(const T* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
template <class V, class T>
void store(T* to, V v) {
  std::memcpy(to, &v, sizeof v);
}

// Lanes of all ones where it is so.
template <int kWords>
Times<kWords> below(Times<kWords> times, uint32_t limit) {
  return __builtin_bit_cast(Times<kWords>, times < Times<kWords>(limit));
}
template <int kWords>
bool all(Times<kWords> mask) {
  return __builtin_reduce_and(mask) != 0;
}

struct Place {
  Shadow* shadow;
  int word;
};

Place place_of(const void* at, size_t bytes, const char* what) {
  Lds& lds = *machine.lds;
  const auto* const byte = static_cast<const unsigned char*>(at);
  if (byte < lds.bytes || byte + bytes > lds.bytes + lds.used) {
    fail("LDS %s outside of the block's %zu bytes, at %td", what, lds.used, byte - lds.bytes);
  }
  const auto offset = static_cast<size_t>(byte - lds.bytes);
  if (offset % (bytes < 16 ? bytes : 16) != 0) fail("LDS %s of %zu bytes misaligned", what, bytes);
  return {lds.shadow + offset / (kWord * kTogether), static_cast<int>(offset / kWord % kTogether)};
}

// Two threads' accesses without a barrier between them: of the block, or if they are of one wavefront, of that.
bool unordered(int16_t other, uint32_t time) {
  const Fiber& f = *machine.current;
  if (other == f.index || time < machine.block_start) return false;
  return other == kMany || other / machine.wave != f.index / machine.wave || time >= f.wave->start;
}

void check_read(const Shadow& s, int word) {
  if (s.write_time[word] < machine.block_begin) fail("LDS word read that nobody wrote");
  if (unordered(s.writer[word], s.write_time[word]))
    fail("LDS race: thread %d wrote what is read, no barrier between", s.writer[word]);
}
void check_write(const Shadow& s, int word) {
  if (unordered(s.writer[word], s.write_time[word]))
    fail("LDS race: thread %d wrote the same word, no barrier between", s.writer[word]);
  if (unordered(s.reader[word], s.read_time[word]))
    fail("LDS race: thread %d read what is overwritten, no barrier between", s.reader[word]);
}

template <int kWords>
void read(Place p) {
  Shadow& s = *p.shadow;
  const int w = p.word;
  // Mostly all of it was written in this block before its last barrier.
  const auto written = load<Times<kWords>>(s.write_time + w);
  if (!all<kWords>(below<kWords>(written - machine.block_begin, machine.block_start - machine.block_begin))) {
    for (int i = 0; i < kWords; ++i) check_read(s, w + i);
  }
  const auto me = static_cast<int16_t>(machine.current->index);
  const auto old = below<kWords>(load<Times<kWords>>(s.read_time + w), machine.block_start);
  const auto readers = load<Threads<kWords>>(s.reader + w);
  const Threads<kWords> only_me = __builtin_convertvector(old, Threads<kWords>) | (readers == Threads<kWords>(me));
  store(s.reader + w, (only_me & Threads<kWords>(me)) | (~only_me & Threads<kWords>(kMany)));
  store(s.read_time + w, Times<kWords>(machine.clock));
}

template <int kWords>
void write(Place p) {
  Shadow& s = *p.shadow;
  const int w = p.word;
  const auto times = load<Times<kWords>>(s.write_time + w), reads = load<Times<kWords>>(s.read_time + w);
  if (!all<kWords>(below<kWords>(times, machine.block_start) & below<kWords>(reads, machine.block_start))) {
    for (int i = 0; i < kWords; ++i) check_write(s, w + i);
  }
  store(s.write_time + w, Times<kWords>(machine.clock));
  store(s.read_time + w, Times<kWords>(0));
  store(s.writer + w, Threads<kWords>(static_cast<int16_t>(machine.current->index)));
}

}  // namespace

char* lds(size_t bytes) {
  Fiber& f = *machine.current;
  const size_t at = (f.lds_used + 63) / 64 * 64;
  f.lds_used = at + bytes;
  if (f.lds_used > kLdsBytes) fail("%zu bytes of LDS", f.lds_used);
  if (f.lds_used > machine.lds->used) {
    // Poison, NaN in every type, for what is read although nobody wrote it.
    std::memset(machine.lds->bytes + machine.lds->used, 0xff, f.lds_used - machine.lds->used);
    machine.lds->used = f.lds_used;
  }
  return reinterpret_cast<char*>(machine.lds->bytes) + at;
}

void lds_read(const void* at, size_t bytes) {
  const Place place = place_of(at, bytes, "read");
  switch (bytes) {
    case 16:
      return read<8>(place);
    case 8:
      return read<4>(place);
    case 4:
      return read<2>(place);
    case 2:
      return read<1>(place);
    default:
      fail("LDS read of %zu bytes", bytes);
  }
}

void lds_write(const void* at, size_t bytes) {
  const Place place = place_of(at, bytes, "write");
  switch (bytes) {
    case 16:
      return write<8>(place);
    case 8:
      return write<4>(place);
    case 4:
      return write<2>(place);
    case 2:
      return write<1>(place);
    default:
      fail("LDS write of %zu bytes", bytes);
  }
}

// A copy is a write from here until it lands: both ends are held against what others do.
void copy_to_lds(const void* from, char* to, size_t bytes) {
  Fiber& f = *machine.current;
  char* const at = to + static_cast<size_t>(f.lane) * bytes;
  lds_write(at, bytes);
  f.copies.push_back({from, at, bytes});
}
void land_copies() {
  Fiber& f = *machine.current;
  for (const Fiber::Copy& copy : f.copies) {
    lds_write(copy.to, copy.bytes);
    std::memcpy(copy.to, copy.from, copy.bytes);
  }
  f.copies.clear();
}

}  // namespace tsr::emulation
