#include "client/completion_command.h"

#include <cstdio>
#include <utility>

#include "client/commands.h"

namespace deepencoder::client {
namespace {

const char kUsage[] =
    "deepencoder completion SHELL: a script that completes commands, flags and their values.\n"
    "\n"
    "  bash   eval \"$(deepencoder completion bash)\"     in ~/.bashrc, or for all users\n"
    "         deepencoder completion bash > /usr/share/bash-completion/completions/deepencoder\n"
    "  zsh    eval \"$(deepencoder completion zsh)\"      in ~/.zshrc, after compinit, or\n"
    "         deepencoder completion zsh > DIR/_deepencoder     with DIR in $fpath\n"
    "  fish   deepencoder completion fish > ~/.config/fish/completions/deepencoder.fish\n"
    "\n"
    "The scripts ask the program's --help, so they know what the installed version knows.\n";

// The scripts read commands from "  deepencoder COMMAND ...   what it does" and flags from
// "  --name=VALUE   what it is for" of the help texts.
const char kBash[] = R"script(# bash completion for deepencoder
_deepencoder_values() {
  case "$1" in
    --mode) echo tiny small base large gundam ;;
    --dtype) echo bf16 fp16 fp32 ;;
    --format) echo safetensors npy ;;
    --alpha) echo drop white ;;
    --gray16) echo high_byte saturate ;;
  esac
}

_deepencoder() {
  local program="${COMP_WORDS[0]}" command="${COMP_WORDS[1]}"
  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"
  local flags choices
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    choices="$("$program" --help 2>/dev/null | sed -n 's/^  deepencoder \([a-z][a-z]*\) .*/\1/p')"
    COMPREPLY=($(compgen -W "$choices" -- "$current"))
    return
  fi
  # "--mode=base" arrives as three words.
  if [ "$current" = "=" ]; then
    current=""
  elif [ "$previous" = "=" ]; then
    previous="${COMP_WORDS[COMP_CWORD-2]}"
  fi
  case "$command" in
    completion) COMPREPLY=($(compgen -W "bash zsh fish" -- "$current")); return ;;
    help)
      choices="$("$program" --help 2>/dev/null | sed -n 's/^  deepencoder \([a-z][a-z]*\) .*/\1/p')"
      COMPREPLY=($(compgen -W "$choices" -- "$current"))
      return ;;
    checkpoint)
      if [ "$COMP_CWORD" -eq 2 ]; then
        choices="$("$program" checkpoint --help 2>/dev/null |
                   sed -n 's/^  deepencoder checkpoint \([a-z][a-z]*\) .*/\1/p')"
        COMPREPLY=($(compgen -W "$choices" -- "$current"))
        return
      fi ;;
  esac
  flags="$("$program" "$command" --help 2>/dev/null |
           sed -n 's/^ \{2,\}\(--[a-z0-9-]*=\{0,1\}\).*/\1/p')"
  case "$previous" in
    --*)
      choices="$(_deepencoder_values "$previous")"
      if [ -n "$choices" ]; then
        COMPREPLY=($(compgen -W "$choices" -- "$current"))
        return
      fi ;;
  esac
  case "$current" in
    -*)
      COMPREPLY=($(compgen -W "$flags" -- "$current"))
      case "${COMPREPLY[0]}" in *=) compopt -o nospace 2>/dev/null ;; esac ;;
    *)
      local IFS=$'\n'
      compopt -o filenames 2>/dev/null
      COMPREPLY=($(compgen -f -- "$current")) ;;
  esac
}

complete -F _deepencoder deepencoder
)script";

const char kZsh[] = R"script(#compdef deepencoder
# zsh completion for deepencoder
_deepencoder() {
  local program=${~words[1]} command=${words[2]} line
  local -a choices
  if (( CURRENT == 2 )) || [[ $command == help ]]; then
    for line in ${(f)"$($program --help 2>/dev/null |
        sed -n 's/^  deepencoder \([a-z][a-z]*\) .*   *\([^ ].*\)/\1:\2/p')"}; do
      choices+=($line)
    done
    _describe command choices
    return
  fi
  if [[ $command == completion ]]; then
    compadd bash zsh fish
    return
  fi
  if [[ $command == checkpoint ]] && (( CURRENT == 3 )); then
    compadd ${(f)"$($program checkpoint --help 2>/dev/null |
        sed -n 's/^  deepencoder checkpoint \([a-z][a-z]*\) .*/\1/p')"}
    return
  fi
  local flag=${words[CURRENT-1]}
  if [[ $PREFIX == --*=* ]]; then
    flag=${PREFIX%%=*}
    compset -P '*='
  elif [[ $PREFIX == -* ]]; then
    local -a switches valued
    for line in ${(f)"$($program $command --help 2>/dev/null |
        sed -n 's/^ \{2,\}\(--[a-z0-9-]*\)\(=\{0,1\}\)[^ ]* *\(.*\)/\1\2 \3/p')"}; do
      if [[ ${line%% *} == *= ]]; then
        valued+=("${line%%=*}:${line#* }")
      else
        switches+=("${line%% *}:${line#* }")
      fi
    done
    _describe flag valued -S = -- switches
    return
  fi
  case $flag in
    --mode) compadd tiny small base large gundam ;;
    --dtype) compadd bf16 fp16 fp32 ;;
    --format) compadd safetensors npy ;;
    --alpha) compadd drop white ;;
    --gray16) compadd high_byte saturate ;;
    *) _files ;;
  esac
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _deepencoder "$@"
else
  compdef _deepencoder deepencoder
fi
)script";

const char kFish[] = R"script(# fish completion for deepencoder
# COMMAND<tab>what it does, of the help of "$program" or "$program checkpoint"
function __deepencoder_commands --argument-names program group
    set -l prefix deepencoder $group
    $program $group --help 2>/dev/null |
        string replace --filter --regex "^  $prefix ([a-z]+)\\b(?:.*  +(\\S.*)|.*)\$" '$1\t$2'
end

function __deepencoder_values --argument-names flag
    switch $flag
        case --mode
            printf '%s\n' tiny small base large gundam
        case --dtype
            printf '%s\n' bf16 fp16 fp32
        case --format
            printf '%s\n' safetensors npy
        case --alpha
            printf '%s\n' drop white
        case --gray16
            printf '%s\n' high_byte saturate
    end
end

function __deepencoder
    set -l words (commandline --current-process --tokenize --cut-at-cursor)
    set -l current (commandline --current-token)
    set -l program $words[1]
    if test (count $words) -eq 1; or test "$words[2]" = help
        __deepencoder_commands $program
        return
    end
    switch $words[2]
        case completion
            printf '%s\n' bash zsh fish
            return
        case checkpoint
            if test (count $words) -eq 2
                __deepencoder_commands $program checkpoint
                return
            end
    end
    if string match --quiet -- '--*=*' $current
        set -l flag (string split --max 1 = -- $current)[1]
        set -l values (__deepencoder_values $flag)
        if test (count $values) -gt 0
            printf "$flag=%s\n" $values
        else
            __fish_complete_path (string split --max 1 = -- $current)[2] | string replace --regex -- '^' "$flag="
        end
    else if string match --quiet -- '-*' $current
        $program $words[2] --help 2>/dev/null |
            string replace --filter --regex '^ {2,}(--[a-z0-9-]+=?)\S* *(.*)$' '$1\t$2'
    else
        set -l values (__deepencoder_values $words[-1])
        if test (count $values) -gt 0
            printf '%s\n' $values
        else
            __fish_complete_path $current
        end
    end
end

complete --command deepencoder --no-files --arguments '(__deepencoder)'
)script";

}  // namespace

int RunCompletion(const std::vector<std::string>& args) {
  const std::string shell = args.size() == 1 ? args.front() : "";
  for (const auto& [name, script] : {std::pair{"bash", kBash}, {"zsh", kZsh}, {"fish", kFish}}) {
    if (shell != name) continue;
    std::fputs(script, stdout);
    return kExitOk;
  }
  if (shell == "--help") {
    std::fputs(kUsage, stdout);
    return kExitOk;
  }
  PrintError("completion: one shell is needed: bash, zsh or fish");
  return kExitUsage;
}

}  // namespace deepencoder::client
