// A compute unit played by the host: runs a kernel's blocks one after the other, each thread of a block as a fiber.
//
// Fibers run until they need others: a wavefront's lanes meet at every operation that crosses lanes (swizzles, permutes, matrix
// instructions), a block's threads at barriers. A meeting that can't take place (lanes at different operations, or gone) ends
// the run with what each wavefront waits for, as does everything that the hardware would do silently: an LDS word read before
// it was written, an access outside the block's LDS, and two threads at one word without a barrier between, one of them
// writing. A wavefront's own lanes count as ordered by a wave barrier or an operation across all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace tsr::emulation {

struct Failure {
  char text[400];
};

/// Runs `body` for each thread of each block. Throws Failure.
void run(int wave, uint32_t blocks, uint32_t threads, const std::function<void()>& body);

// ---- what the running thread asks for
int thread_index();
uint32_t block_index();
int lane_index();
void block_barrier();
void wave_barrier();
/// LDS of the block; the same for all of its threads. Called once for each array, in the same order by all.
char* lds(size_t bytes);
void lds_read(const void* at, size_t bytes);
void lds_write(const void* at, size_t bytes);
/// Sets out to copy from global memory to `to` + lane * bytes in LDS. It lands with land_copies: until then the old words are there,
/// and nobody may touch them.
void copy_to_lds(const void* from, char* to, size_t bytes);
void land_copies();
/// The value of another lane: among the 32 lanes of a half if all of them ask within it, else among the whole wavefront.
int permute(int value, int lane);
/// Lanes meet: `compute` gets the addresses of all lanes' inputs and of the outputs that it has to fill. `operation` is one literal
/// for all that do the same.
constexpr int kLanes = 64;
using Compute = void (*)(const void* const* in, void* const* out);
void meet(const char* operation, const void* in, void* out, Compute compute);

}  // namespace tsr::emulation
