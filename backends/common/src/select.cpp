#include "tessera/common/select.h"

#include <cstring>

#include "tessera/common/text.h"

namespace tsr {
namespace {

const Variant* find(const std::vector<Variant>& rows, const char* name) {
  for (const Variant& row : rows) {
    if (std::strcmp(row.name, name) == 0) return &row;
  }
  return nullptr;
}

Verdict unknown(const std::vector<Variant>& rows, const char* name) {
  std::string names;
  for (const Variant& row : rows) names += text(names.empty() ? "" : ", ", row.name);
  return invalid("kernel: is \"", std::string(name).substr(0, 100), "\", must be one of ", names);
}

// Why nothing can: rows often share a reason, which is then said once, at the row that was asked for or the first.
Verdict none(const std::vector<Variant>& rows, const Problem& problem) {
  if (rows.empty()) return unsupported("this build has no kernel variants");
  std::string reasons;
  for (const Variant& row : rows) {
    if (!row.by_name_only) reasons += text(reasons.empty() ? "" : "; ", row.name, ": ", objection(row, problem));
  }
  return unsupported("no kernel variant can do this: ", reasons);
}

}  // namespace

Selection select_variant(const std::vector<Variant>& rows, const Problem& problem, Preference preference,
                         bool explain) {
  Selection selection;
  const Variant* forced = nullptr;
  if (problem.kernel != nullptr) {
    forced = find(rows, problem.kernel);
    if (forced == nullptr) {
      selection.verdict = unknown(rows, problem.kernel);
      return selection;
    }
    if (able(*forced, problem)) {
      selection.row = forced;
    } else {
      selection.verdict =
          unsupported("kernel: is \"", forced->name, "\", which can't do this: ", objection(*forced, problem));
    }
  } else {
    int best = 0;
    for (const Variant& row : rows) {
      if (row.by_name_only || !able(row, problem)) continue;
      const int liked = preference(problem, row);
      if (selection.row == nullptr || liked > best) {
        selection.row = &row;
        best = liked;
      }
    }
    if (selection.row == nullptr) selection.verdict = none(rows, problem);
  }
  if (!explain) return selection;

  for (const Variant& row : rows) {
    if (&row == selection.row) continue;
    std::string reason = objection(row, problem);
    if (reason.empty()) {
      reason = forced         ? text("could do it, but \"", forced->name, "\" was asked for")
               : row.rounds_q ? std::string("could do it, but rounds q to 8 bits, so it has to be asked for by name")
               : row.by_name_only ? std::string("could do it, but runs only where it is asked for by name")
                                  : text("could do it, but ", selection.row->name, " is preferred for this shape");
    }
    selection.rejections.push_back({&row, std::move(reason)});
  }
  return selection;
}

Verdict write_explanation(const std::vector<Rejection>& rejections, tsr_explanation e, tsr_explanation* to) {
  tsr_explanation given{};
  if (to->struct_size < sizeof to->struct_size) return write_struct(e, "explanation", to);  // says what is wrong
  std::memcpy(&given, to, to->struct_size < sizeof given ? to->struct_size : sizeof given);
  e.rejections = given.rejections;
  e.rejection_capacity = given.rejections ? given.rejection_capacity : 0;
  e.rejection_count = static_cast<uint32_t>(rejections.size());
  for (uint32_t i = 0; i < e.rejection_count && i < e.rejection_capacity; ++i) {
    copy_text(e.rejections[i].kernel, rejections[i].row->name);
    copy_text(e.rejections[i].reason, rejections[i].reason.c_str());
  }
  return write_struct(e, "explanation", to);
}

}  // namespace tsr
