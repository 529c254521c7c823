#include "kvlift/shell_files.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "fmt/format.h"
#include "kvlift/help.h"

namespace kvlift::cli {
namespace {

struct Flag {
  std::vector<std::string> shorts, longs;  // without dashes
  std::string help;
  bool takes_value = false;
  std::vector<std::string> choices;
};

struct Command {
  std::string name, help;
  std::vector<Flag> flags;
  std::vector<std::string> operands;
};

Command CommandOf(const CLI::App& app) {
  Command command{app.get_name(), app.get_description(), {}, {}};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) {
      command.operands.push_back(option->get_name(true));
      continue;
    }
    Flag flag{option->get_snames(), option->get_lnames(), option->get_description(),
              option->get_items_expected_max() > 0, ChoicesOf(*option)};
    command.flags.push_back(std::move(flag));
  }
  return command;
}

std::vector<Command> CommandsOf(const CLI::App& app) {
  std::vector<Command> commands;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    commands.push_back(CommandOf(*sub));
  }
  return commands;
}

std::vector<std::string> Spelt(const Flag& flag) {
  std::vector<std::string> words;
  for (const std::string& name : flag.shorts) words.push_back("-" + name);
  for (const std::string& name : flag.longs) words.push_back("--" + name);
  return words;
}

std::string Names(const std::vector<Command>& commands) {
  return absl::StrJoin(commands, " ", [](std::string* out, const Command& c) { *out += c.name; });
}

std::string Bash(const std::vector<Command>& commands) {
  std::string values, flags;
  for (const Command& command : commands) {
    std::vector<std::string> words;
    for (const Flag& flag : command.flags) {
      for (const std::string& word : Spelt(flag)) {
        words.push_back(word);
        if (flag.choices.empty()) continue;
        values += fmt::format("    \"{} {}\") words=\"{}\" ;;\n", command.name, word,
                              absl::StrJoin(flag.choices, " "));
      }
    }
    flags += fmt::format("    {}) words=\"{}\" ;;\n", command.name, absl::StrJoin(words, " "));
  }
  return fmt::format(R"(# Completion of kvlift for bash.
_kvlift() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}
  local command=${{COMP_WORDS[1]}} words=
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{0} --help --version" -- "$current"))
    return
  fi
  case "$command $previous" in
{1}  esac
  if [ -z "$words" ]; then
    case "$current" in
      -*) case "$command" in
{2}    esac ;;
    esac
  fi
  if [ -n "$words" ]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  else
    COMPREPLY=($(compgen -f -- "$current"))
    compopt -o filenames 2>/dev/null
  fi
}}
complete -F _kvlift kvlift
)",
                     Names(commands), values, flags);
}

// Escapes text inside '[...]' of _arguments, in single quotes.
std::string ZshText(const std::string& text) {
  return absl::StrReplaceAll(text, {{"'", "'\\''"}, {"[", "\\["}, {"]", "\\]"}, {":", "\\:"}});
}

std::string Zsh(const std::vector<Command>& commands) {
  std::string list, cases;
  for (const Command& command : commands) {
    list += fmt::format("    '{}:{}'\n", command.name, ZshText(command.help));
    cases += fmt::format("    {})\n      _arguments \\\n", command.name);
    for (const Flag& flag : command.flags) {
      const std::string value = !flag.takes_value ? ""
                                : flag.choices.empty()
                                    ? ":value:_files"
                                    : fmt::format(":value:({})", absl::StrJoin(flag.choices, " "));
      for (const std::string& word : Spelt(flag)) {
        cases += fmt::format("        '*{}[{}]{}' \\\n", word, ZshText(flag.help), value);
      }
    }
    cases += "        '*:file:_files' ;;\n";
  }
  return fmt::format(R"(#compdef kvlift
# Completion of kvlift for zsh.
_kvlift() {{
  local -a commands
  commands=(
{0}  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
{1}  esac
}}
compdef _kvlift kvlift
)",
                     list, cases);
}

std::string FishText(const std::string& text) {
  return "'" + absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}) + "'";
}

std::string Fish(const std::vector<Command>& commands) {
  std::string text = "# Completion of kvlift for fish.\n";
  for (const Command& command : commands) {
    text += fmt::format("complete -c kvlift -n __fish_use_subcommand -f -a {} -d {}\n",
                        command.name, FishText(command.help));
  }
  for (const Command& command : commands) {
    for (const Flag& flag : command.flags) {
      text += fmt::format("complete -c kvlift -n '__fish_seen_subcommand_from {}'", command.name);
      for (const std::string& name : flag.shorts) text += " -s " + name;
      for (const std::string& name : flag.longs) text += " -l " + name;
      if (!flag.choices.empty()) {
        text += fmt::format(" -x -a '{}'", absl::StrJoin(flag.choices, " "));
      } else if (flag.takes_value) {
        text += " -r";
      }
      text += fmt::format(" -d {}\n", FishText(flag.help));
    }
  }
  return text;
}

// Escapes text for roff: a leading dot or quote is a request, and "\-" is a dash that can be typed.
std::string Roff(const std::string& text) {
  std::string out = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}});
  if (!out.empty() && (out[0] == '.' || out[0] == '\'')) out.insert(0, "\\&");
  return out;
}

// Returns the section of the man page about the exit codes of cli.h.
std::string ExitStatus() {
  constexpr std::pair<const char*, const char*> kCodes[] = {
      {"0", "Done, clean, or equal."},
      {"1",
       "Findings: lint errors, models that differ, no cache found, or caches that cannot be "
       "converted."},
      {"2", "The command line is wrong."},
      {"3", "An input cannot be read, is malformed, or is over a limit."},
      {"4", "Inconclusive: nothing is disproved, and not everything is proved."},
      {"5", "An output cannot be written."},
      {"70", "An internal error."},
      {"128+n", "The program was ended by signal n."},
  };
  std::string text = ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : kCodes) {
    text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", code, Roff(meaning));
  }
  return text;
}

std::string Examples(const CLI::App& app) {
  std::string text = ".SH EXAMPLES\n";
  for (const Command& command : CommandsOf(app)) {
    const std::vector<std::string> lines =
        absl::StrSplit(std::string(ExampleLinesOf(command.name)), '\n');
    text += fmt::format(".TP\n{}:\n.nf\n", Roff(command.help));
    for (const std::string& line : lines) text += Roff(line) + "\n";
    text += ".fi\n";
  }
  return text;
}

std::string SeeAlso() {
  return ".SH SEE ALSO\n\\fBkvlift\\fR \\fICOMMAND\\fR \\fB\\-\\-help\\-all\\fR lists the flags "
         "of a command by group, and \\fBkvlift explain\\fR \\fICODE\\fR says what a finding "
         "means.\n";
}

}  // namespace

std::string CompletionScript(const CLI::App& app, std::string_view shell) {
  const std::vector<Command> commands = CommandsOf(app);
  if (shell == "zsh") return Zsh(commands);
  if (shell == "fish") return Fish(commands);
  return Bash(commands);
}

std::string ManPage(const CLI::App& app, std::string_view version) {
  std::string text = fmt::format(
      ".TH KVLIFT 1 \"\" \"kvlift {}\"\n.SH NAME\nkvlift \\- {}\n.SH SYNOPSIS\n"
      ".B kvlift\n.I COMMAND\n[\\fIflags\\fR] \\fIFILES\\fR\n.SH COMMANDS\n",
      version, Roff(app.get_description()));
  for (const Command& command : CommandsOf(app)) {
    text += fmt::format(".SS \"kvlift {} {}\"\n{}.\n", Roff(command.name),
                        Roff(absl::StrJoin(command.operands, " ")), Roff(command.help));
    for (const Flag& flag : command.flags) {
      text += fmt::format(".TP\n\\fB{}\\fR", Roff(absl::StrJoin(Spelt(flag), ", ")));
      if (!flag.choices.empty()) {
        text += fmt::format(" {}", Roff(absl::StrJoin(flag.choices, "|")));
      } else if (flag.takes_value) {
        text += " \\fIVALUE\\fR";
      }
      text += "\n" + Roff(flag.help) + "\n";
    }
  }
  return text + ExitStatus() + Examples(app) + SeeAlso();
}

}  // namespace kvlift::cli
