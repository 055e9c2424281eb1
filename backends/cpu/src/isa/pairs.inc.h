// Products of matrices as dot products of bf16 pairs, summed in fp32: in AMX tiles, or in vectors of pairs. Left factors
// lie as rows of bf16, right ones as 32-bit pairs across lanes. bf16 operands are one piece. A wider number is the sum of
// pieces, each the bf16 nearest to what is left: two hold every fp16 number, three every fp32 number, exactly. A product of
// two numbers is then the sum of the products of their pieces, but for those that are less than 2^-24 of it.

constexpr int kMostPieces = 3;

TSR_SIMD int pieces_of(tsr_dtype dtype) { return dtype == TSR_BF16 ? 1 : dtype == TSR_F16 ? 2 : 3; }

/// A left and a right factor, as pieces that lie apart so many elements.
struct Factors {
  const uint16_t* left;  ///< [rows][left_stride]
  int64_t left_stride;
  int64_t left_piece;
  int left_pieces;
  const uint32_t* right;  ///< [pairs][kPanel]
  int64_t right_piece;
  int right_pieces;
};

/// Calls body(left, right) for the products of pieces that count, the small ones first.
template <class F>
TSR_SIMD void for_pieces(const Factors& f, F&& body) {
  for (int order = kMostPieces - 1; order >= 0; order--) {
    for (int l = 0; l <= order; l++) {
      const int r = order - l;
      if (l < f.left_pieces && r < f.right_pieces) body(f.left + l * f.left_piece, f.right + r * f.right_piece);
    }
  }
}

#if defined(TSR_AMX)

/// Tiles 0 to 3 are sums of 16 x 16, tiles 4 and 5 left factors, 6 and 7 right ones; all of 16 rows of 64 bytes.
struct ProductScope {
  ProductScope() {
    struct alignas(64) {
      uint8_t palette = 1, start = 0, reserved[14] = {};
      uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } const configuration;
    asm volatile("ldtilecfg %0" ::"m"(configuration));
  }
  ~ProductScope() { asm volatile("tilerelease"); }
};

/// sums[row][lane] = left[row][:] . right[:][lane] for kPad rows from `row` on.
TSR_SIMD void multiply_block(const Factors& f, int64_t row, int64_t pairs, float* sums) {
  static_assert(kPanel == 32 && kPad == 32, "two tiles each way");
  asm volatile("" ::: "memory");  // what tiles read must have been written
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for_pieces(f, [&](const uint16_t* left, const uint32_t* right) {
    const uint16_t* upper = left + row * f.left_stride;
    const uint16_t* lower = upper + 16 * f.left_stride;
    for (int64_t pair = 0; pair < pairs; pair += 16) {
      _tile_loadd(4, upper + 2 * pair, f.left_stride * 2);
      _tile_loadd(6, right + pair * kPanel, kPanel * 4);
      _tile_loadd(7, right + pair * kPanel + 16, kPanel * 4);
      _tile_loadd(5, lower + 2 * pair, f.left_stride * 2);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  });
  _tile_stored(0, sums, kPanel * 4);
  _tile_stored(1, sums + 16, kPanel * 4);
  _tile_stored(2, sums + 16 * kPanel, kPanel * 4);
  _tile_stored(3, sums + 16 * kPanel + 16, kPanel * 4);
}

#else

struct ProductScope {};

TSR_SIMD void multiply_block(const Factors& f, int64_t row, int64_t pairs, float* sums) {
  for (int64_t begin = 0; begin < kPad; begin += TSR_BLOCK) {
    vf acc[TSR_BLOCK][TSR_PANEL_VECTORS] = {};
    for_pieces(f, [&](const uint16_t* left, const uint32_t* right) {
      for (int64_t pair = 0; pair < pairs; pair++) {
        vi x[TSR_PANEL_VECTORS];
#pragma GCC unroll 8
        for (int v = 0; v < TSR_PANEL_VECTORS; v++) x[v] = bits(load_bits(right + pair * kPanel + v * TSR_VL));
#pragma GCC unroll 16
        for (int m = 0; m < TSR_BLOCK; m++) {
          int32_t both;
          __builtin_memcpy(&both, left + (row + begin + m) * f.left_stride + 2 * pair, sizeof both);
          const vi y = splat_int(both);
#pragma GCC unroll 8
          for (int v = 0; v < TSR_PANEL_VECTORS; v++) acc[m][v] = pair_dot(y, x[v], acc[m][v]);
        }
      }
    });
#pragma GCC unroll 16
    for (int m = 0; m < TSR_BLOCK; m++) {
#pragma GCC unroll 8
      for (int v = 0; v < TSR_PANEL_VECTORS; v++) store(sums + (begin + m) * kPanel + v * TSR_VL, acc[m][v]);
    }
  }
}

#endif
