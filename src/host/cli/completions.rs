//! Completions of `pedl` and `pedl-run` for a shell, made from the tables of verbs and options.

use std::fmt::Write as _;

use super::checkpoint::ACTIONS;
use super::flags::FLAGS;
use crate::verify::OPTIONS;

/// The completions for a shell, to be sourced; `None` if it is not known.
///
/// Args:
///     `verbs`: name and help of each verb of `pedl`.
pub(super) fn script(shell: &str, verbs: &[(&str, &str)]) -> Option<String> {
    match shell {
        "bash" => Some(bash(verbs)),
        "zsh" => Some(zsh(verbs)),
        "fish" => Some(fish(verbs)),
        _ => None,
    }
}

/// Words for a shell, from which it chooses.
struct Words {
    /// Options of `pedl-run`, and those of `pedl verify` in addition.
    options: String,
    of_verify: String,
    verbs: String,
    /// Actions of `pedl checkpoint`.
    actions: String,
}

impl Words {
    fn new(verbs: &[(&str, &str)]) -> Self {
        let options = FLAGS.iter().map(|flag| format!("--{}", flag.name));
        let of_verify = OPTIONS.iter().map(|option| format!("--{}", option.name));
        let verbs = verbs.iter().map(|(name, _)| *name);
        Self {
            options: options.collect::<Vec<_>>().join(" "),
            of_verify: of_verify.collect::<Vec<_>>().join(" "),
            verbs: verbs.collect::<Vec<_>>().join(" "),
            actions: ACTIONS.map(|(name, _, _)| name).join(" "),
        }
    }
}

fn bash(verbs: &[(&str, &str)]) -> String {
    let Words {
        options,
        of_verify,
        verbs,
        actions,
    } = Words::new(verbs);
    format!(
        "_pedl_run() {{\n    local word=\"${{COMP_WORDS[COMP_CWORD]}}\"\n    if [[ $word == --* ]]; then\n        \
         COMPREPLY=($(compgen -W \"{options} $1\" -- \"$word\"))\n    else\n        \
         COMPREPLY=($(compgen -f -- \"$word\"))\n    fi\n}}\n\
         _pedl() {{\n    if ((COMP_CWORD == 1)); then\n        \
         COMPREPLY=($(compgen -W \"{verbs}\" -- \"${{COMP_WORDS[1]}}\"))\n    \
         elif [[ ${{COMP_WORDS[1]}} == verify ]]; then\n        _pedl_run \"{of_verify}\"\n    \
         elif [[ ${{COMP_WORDS[1]}} == checkpoint ]]; then\n        if ((COMP_CWORD == 2)); then\n            \
         COMPREPLY=($(compgen -W \"{actions}\" -- \"${{COMP_WORDS[2]}}\"))\n        else\n            \
         COMPREPLY=($(compgen -d -- \"${{COMP_WORDS[COMP_CWORD]}}\"))\n        fi\n    else\n        _pedl_run\n    fi\n}}\n\
         complete -o filenames -F _pedl_run pedl-run\ncomplete -o filenames -F _pedl pedl\n"
    )
}

fn zsh(verbs: &[(&str, &str)]) -> String {
    let Words {
        options,
        of_verify,
        verbs,
        actions,
    } = Words::new(verbs);
    format!(
        "autoload -U compinit && compinit\n\
         _pedl_run_options=({options})\n_pedl_verify_options=({of_verify})\n_pedl_verbs=({verbs})\n\
         _pedl_run() {{ if [[ $words[CURRENT] == --* ]]; then compadd -- $_pedl_run_options $*; else _files; fi }}\n\
         _pedl() {{ if ((CURRENT == 2)); then compadd -- $_pedl_verbs; \
         elif [[ $words[2] == verify ]]; then _pedl_run $_pedl_verify_options; \
         elif [[ $words[2] == checkpoint ]]; then \
         if ((CURRENT == 3)); then compadd -- {actions}; else _files -/; fi; else _pedl_run; fi }}\n\
         compdef _pedl_run pedl-run\ncompdef _pedl pedl\n"
    )
}

fn fish(verbs: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for flag in FLAGS {
        let value = if flag.value.is_some() { " -r" } else { "" };
        let _ = writeln!(
            text,
            "complete -c pedl-run -l {}{value} -d '{}'",
            flag.name,
            flag.help.replace('\'', "\\'")
        );
    }
    for option in OPTIONS {
        let value = if option.value.is_some() { " -r" } else { "" };
        let _ = writeln!(
            text,
            "complete -c pedl -n \"__fish_seen_subcommand_from verify\" -l {}{value} -d '{}'",
            option.name, option.help
        );
    }
    for (name, help) in verbs {
        let _ = writeln!(
            text,
            "complete -c pedl -n __fish_use_subcommand -f -a {name} -d '{help}'"
        );
    }
    for (action, _, help) in ACTIONS {
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let _ = writeln!(
            text,
            "complete -c pedl -n \"__fish_seen_subcommand_from checkpoint\" -f -a {action} -d '{help}'",
        );
    }
    text
}
