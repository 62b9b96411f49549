#include "assay/cli/describe.h"

namespace assay::cli {

CommandFacts Describe(const CLI::App& app) {
  CommandFacts facts{app.get_name(), app.get_description(), app.get_footer(), {}};
  for (const CLI::Option* option : app.get_options()) {
    OptionFacts out;
    for (const std::string& flag : option->get_snames()) out.flags.emplace_back("-" + flag);
    for (const std::string& flag : option->get_lnames()) out.flags.emplace_back("--" + flag);
    if (out.flags.empty()) out.name = option->get_name(true);
    if (option->get_items_expected_max() > 0) out.value = option->get_type_name();
    out.description = option->get_description();
    out.required = option->get_required();
    out.many = option->get_items_expected_max() > 1;
    facts.options.push_back(std::move(out));
  }
  return facts;
}

}  // namespace assay::cli
