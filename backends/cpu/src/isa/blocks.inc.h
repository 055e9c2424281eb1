// The sizes of what prefill multiplies.

constexpr int kPanel = TSR_PANEL_VECTORS * TSR_VL;
constexpr int kTargetRows = TSR_TARGET_ROWS;
/// Keys of a tile: a power of two between these. Scores of a panel, [keys][kPanel], stay in the L1 cache.
constexpr int64_t kFewestTileKeys = 32;
constexpr int64_t kMostTileKeys = kPanel * 4 * 256 <= 24 << 10 ? 256 : 128;
/// Products work on blocks of so many keys, or dimensions: what they read and write is padded to it.
constexpr int64_t kPad = 32;
TSR_SIMD int64_t padded(int64_t n) { return (n + kPad - 1) / kPad * kPad; }
