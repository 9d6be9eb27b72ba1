//! Shell scripts that are given in place of commands.

/// Whether a text of several lines, in which a command was refused, is a shell script: a line begins
/// with what only a shell reads.
pub(crate) fn is_script(text: &str) -> bool {
    let has_lines = text.trim_end().contains('\n');
    has_lines && (names_shell(text) || text.lines().any(is_of_shell))
}

/// Whether the first line names a shell as its interpreter, such as `#!/bin/sh`.
fn names_shell(text: &str) -> bool {
    let first = text.lines().next().and_then(|line| line.strip_prefix("#!"));
    first.is_some_and(|line| line.split_whitespace().any(|word| word.ends_with("sh")))
}

/// Whether a line begins with a variable, an assignment or a word of the shell.
fn is_of_shell(line: &str) -> bool {
    let Some(word) = line.split_whitespace().next() else {
        return false;
    };
    let is_in_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_name = |name: &str| {
        name.starts_with(|c: char| is_in_name(c) && !c.is_ascii_digit())
            && name.chars().all(is_in_name)
    };
    let is_assignment = word.split_once('=').is_some_and(|(name, _)| is_name(name));
    word.starts_with('$') || is_assignment || WORDS.contains(&word)
}

/// Words at the beginning of a line that are none of ipfw's commands.
const WORDS: &[&str] = &[
    ".", "[", "{", "}", "case", "do", "done", "echo", "elif", "else", "esac", "eval", "exit",
    "export", "fi", "for", "function", "if", "local", "return", "source", "then", "until", "while",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_have_lines_that_begin_as_only_a_shell_reads_them() {
        for script in [
            "#!/bin/sh\nipfw -q -f flush",
            "#!/usr/bin/env bash\n# rules\nipfw add allow ip from $net to any",
            "add 100 allow ip from any to any\n$cmd add deny ip from any to any",
            "fwcmd=\"/sbin/ipfw -q\"\n",
            "pipe 1 config\n  if [ -n \"$net\" ]; then\n  fi",
            "pipe 1 config\ncase $1 in",
            "${fwcmd} -f flush\npipe 1 config",
        ] {
            let lines = format!("{script}\nadd 1 allow ip from any to any");
            assert!(is_script(&lines), "{script}");
        }
        for commands in [
            "",
            "$cmd add allow ip from any to any\n",
            "#!/sbin/ipfw -q\npipe 1 config",
            "# if\n# $cmd\nadd 1 alow ip from any to any // x=1",
            "net.inet.ip.fw.one_pass=0\nsysctl net.inet.ip.fw.verbose=1",
            "1=2\n=2\npipe 1 config bw 1Mbit/s",
        ] {
            assert!(!is_script(commands), "{commands}");
        }
    }
}
