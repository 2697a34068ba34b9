//! The page of all tools for readers, `docs/reference/tool-options.md`, matches what clap knows
//! about them.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Command;

use super::tools::command;

const HEAD: &str = "\
# Options of the tools

Generated from their definitions by `cargo test -p server write_the_tools -- --ignored`; a test fails when it is out of date.
Each part is what `--help` prints. What the tools are for stands in [tools](tools.md), what the server itself takes in
[configuration directives](configuration.md).
";

#[test]
fn the_reference_is_what_help_prints() {
    let text = std::fs::read_to_string(path()).unwrap_or_default();
    assert!(
        text == reference(),
        "out of date: cargo test -p server write_the_tools -- --ignored"
    );
}

#[test]
#[ignore = "writes into the source tree"]
fn write_the_tools() {
    std::fs::write(path(), reference()).unwrap();
}

fn path() -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("docs/reference/tool-options.md")
}

fn reference() -> String {
    let mut all = command();
    // Building completes the commands with their inherited parts.
    all.build();
    let mut text = HEAD.to_owned();
    for tool in all.get_subcommands_mut() {
        describe(&mut text, tool);
    }
    text
}

fn describe(text: &mut String, tool: &mut Command) {
    if tool.get_name() == "help" || tool.is_hide_set() {
        return;
    }
    let name = tool
        .get_bin_name()
        .unwrap_or_else(|| tool.get_name())
        .to_owned();
    let help = tool.render_long_help().to_string();
    let lines: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
    write!(text, "\n## {name}\n\n```text\n{}\n```\n", lines.join("\n")).unwrap();
    for one in tool.get_subcommands_mut() {
        describe(text, one);
    }
}
