// The sizes of what prefill multiplies.

constexpr int kPanel = TSR_PANEL_VECTORS * TSR_VL;
constexpr int kTargetRows = TSR_TARGET_ROWS;
constexpr int64_t kTileKeys = 128;
/// Products work on blocks of so many keys, or dimensions: what they read and write is padded to it.
constexpr int64_t kPad = 32;
TSR_SIMD int64_t padded(int64_t n) { return (n + kPad - 1) / kPad * kPad; }
