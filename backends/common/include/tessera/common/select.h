// The one selector. supports, explain, attention_workspace and attention all ask it, so they can't disagree.
#pragma once

#include <string>
#include <vector>

#include "tessera/common/catalogue.h"

namespace tsr {

/// How much a back end likes a row for a problem that the row can do: the highest wins, the earlier row on a tie. Rows
/// that run by name alone are left out. A function of shapes and options alone, never of contents: results must not depend on what a length array holds.
using Preference = int (*)(const Problem& problem, const Variant& row);

struct Rejection {
  const Variant* row;
  std::string reason;
};

struct Selection {
  /// TSR_OK; TSR_INVALID_ARGUMENT for a forced name that doesn't exist; TSR_UNSUPPORTED if no row can do it.
  Verdict verdict;
  const Variant* row = nullptr;
  /// Every other row and why it isn't the one; only if asked for, since it costs strings.
  std::vector<Rejection> rejections;
};

Selection select_variant(const std::vector<Variant>& rows, const Problem& problem, Preference preference, bool explain);

/// Results go where the caller's struct has room; its rejection array and the capacity of that are input.
Verdict write_explanation(const std::vector<Rejection>& rejections, tsr_explanation e, tsr_explanation* to);

}  // namespace tsr
