// A cell of a report's table, in HTML and in Markdown.
#pragma once

#include <string>

namespace hadal {

struct TableCell {
  std::string text;
  std::string kind;   // "good", "fair" and "bad" colour it in HTML; "" does not
  bool best = false;  // in bold
};

}  // namespace hadal
