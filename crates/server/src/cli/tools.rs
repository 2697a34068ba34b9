//! The words that make the binary do something else than serve, with their options, for `--help`,
//! the shells' completions and the manual pages. The server's own options are directives, which
//! have a grammar of their own. So what `import` and `export` get besides files is only passed on
//! here.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::ValueParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};
use clap_complete::Shell;
use tool::endpoint::Endpoint;
use tool::server::{arguments, named_by};

use super::{Invocation, StartError};
use crate::cluster_tool::Wish;
use crate::config::changes_between;
use crate::identity;

/// Name of the binary in messages and generated files.
const NAME: &str = "iolite";

/// First words that are handled here.
const WORDS: [&str; 8] = [
    "check",
    "cluster",
    "completions",
    "doctor",
    "export",
    "help",
    "import",
    "man",
];

/// Reads the options of a tool. Returns `None` if they are the server's, or valid ones of `import`
/// and `export`.
pub(super) fn read(options: &[OsString]) -> Result<Option<Invocation>, StartError> {
    let first = options.first().and_then(|word| word.to_str());
    // A server that starts builds none of all this. `help` alone describes the server.
    if !first.is_some_and(|word| WORDS.contains(&word))
        || (first == Some("help") && options.len() == 1)
    {
        return Ok(None);
    }
    let words = std::iter::once(OsString::from(NAME)).chain(options.iter().cloned());
    let matches = match command().try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            return Ok(Some(print(error.to_string())));
        }
        Err(error) => return Err(StartError(error.to_string().trim_end().to_owned())),
    };
    Ok(match matches.subcommand() {
        Some(("check", given)) => {
            let files = given.get_many::<PathBuf>("files").unwrap_or_default();
            Some(Invocation::Check {
                files: files.cloned().collect(),
                is_json: given.get_flag("json"),
            })
        }
        Some(("doctor", given)) => Some(Invocation::Doctor {
            target: target(given)?,
            is_json: given.get_flag("json"),
        }),
        Some(("cluster", given)) => match given.subcommand() {
            Some(("recover", given)) => Some(Invocation::Recover {
                dir: given.get_one::<PathBuf>("dir").cloned().unwrap_or_default(),
                is_confirmed: given.get_flag("yes"),
                is_json: is_json(given),
            }),
            Some((word, given)) => Some(Invocation::Cluster {
                target: target(given)?,
                wish: wish(word, given),
                is_json: is_json(given),
            }),
            None => None,
        },
        Some(("completions", given)) => Some(print(completions(given))),
        Some(("man", given)) => Some(print(manual(given)?)),
        _ => None,
    })
}

fn wish(word: &str, given: &ArgMatches) -> Wish {
    match word {
        "leave" if given.get_flag("for-restart") => Wish::LeaveForRestart,
        "leave" => order("LEAVE", given),
        "drain" => order("DRAIN", given),
        "undrain" => order("UNDRAIN", given),
        "create" => Wish::Create {
            nodes: given
                .get_many::<String>("nodes")
                .unwrap_or_default()
                .cloned()
                .collect(),
            replicas: given.get_one::<usize>("replicas").copied().unwrap_or(0),
        },
        _ => Wish::Status,
    }
}

/// Whether JSON is requested; false for a command without that option.
fn is_json(given: &ArgMatches) -> bool {
    let flag = given.try_get_one::<bool>("json").ok().flatten();
    flag.copied().unwrap_or_default()
}

fn order(order: &'static str, given: &ArgMatches) -> Wish {
    let node = given.get_one::<String>("node").cloned().unwrap_or_default();
    Wish::Order { order, node }
}

/// Returns the error for a first word that is no file.
pub(super) fn unknown(word: &str) -> StartError {
    let near = command();
    let near = near.get_subcommands().map(Command::get_name);
    let near = near.map(|name| (changes_between(word.as_bytes(), name.as_bytes()), name));
    let hint = match near.min_by_key(|(changes, _)| *changes) {
        Some((changes, name)) if changes <= 1 + word.len() / 4 => {
            format!(" The nearest command is '{name}'.")
        }
        _ => String::new(),
    };
    StartError(format!(
        "'{word}' is neither a command nor a configuration file that is here.{hint}\n\
         {NAME} --help tells what there is; a file of such a name is ./{word}"
    ))
}

fn print(text: String) -> Invocation {
    Invocation::Print { text, code: 0 }
}

fn completions(given: &ArgMatches) -> String {
    let mut script = Vec::new();
    if let Some(shell) = given.get_one::<Shell>("shell") {
        clap_complete::generate(*shell, &mut command(), NAME, &mut script);
    }
    String::from_utf8_lossy(&script).into_owned()
}

fn manual(given: &ArgMatches) -> Result<String, StartError> {
    let mut page = command();
    page.build();
    let mut whole = NAME.to_owned();
    for name in given.get_many::<String>("command").unwrap_or_default() {
        let found = page.find_subcommand(name).cloned();
        page = found.ok_or_else(|| unknown(name))?;
        whole = format!("{whole}-{name}");
    }
    page = page.name(whole);
    let mut text = Vec::new();
    let rendered = clap_mangen::Man::new(page).render(&mut text);
    rendered.map_err(|error| StartError(error.to_string()))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

pub(super) fn command() -> Command {
    Command::new(NAME)
        .about("Serves the Redis protocol")
        .long_about(
            "Serves the Redis protocol. Options are the directives of the configuration file with their values, \
             as in --port 7777; iolite --help lists the forms of the command line.",
        )
        .version(identity::IOLITE_VERSION)
        .override_usage("iolite [FILE] [--directive value ...] [-]\n       iolite COMMAND ...")
        .disable_version_flag(true)
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .help("The configuration file")
                .value_hint(ValueHint::FilePath),
        )
        .subcommands(tool::commands())
        .subcommand(
            Command::new("check")
                .about("Verifies files of this server, RDB files and AOF, and tells what is in them")
                .args([files(), json()]),
        )
        .subcommand(
            Command::new("import")
                .about("Loads an RDB file or an AOF directory into the data of --dir")
                .override_usage("iolite import FILE [--json] [--dir DIR] [options of the server]")
                .arg(json())
                .arg(rest("words", "FILE")),
        )
        .subcommand(cluster())
        .subcommand(doctor())
        .subcommand(export())
        .subcommands(printers())
}

/// Returns the server to connect to, and the user.
fn target(given: &ArgMatches) -> Result<Box<Endpoint>, StartError> {
    let named = named_by(given).map_err(|error| StartError(error.to_string()))?;
    Ok(Box::new(named))
}

fn doctor() -> Command {
    let doctor = Command::new("doctor").about(
        "Looks at a running server and at this machine, and says what is wrong and what to do",
    );
    asking(doctor)
}

fn json() -> Arg {
    Arg::new("json")
        .long("json")
        .action(ArgAction::SetTrue)
        .help("As JSON")
}

fn cluster() -> Command {
    let node = Arg::new("node")
        .value_name("NODE")
        .required(true)
        .help("Its name of 40 digits, its address HOST:PORT, or what it is called");
    Command::new("cluster")
        .about("The control group of a running server")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(asking(
            Command::new("status").about("Who is in it, and who leads"),
        ))
        .subcommand(asking(
            Command::new("leave")
                .about("Has a node leave it, as soon as nobody needs it")
                .arg(
                    node.clone()
                        .required(false)
                        .required_unless_present("for-restart"),
                )
                .arg(for_restart()),
        ))
        .subcommand(asking(
            Command::new("drain")
                .about("Has a node lead nothing, and not be promoted")
                .arg(node.clone()),
        ))
        .subcommand(asking(
            Command::new("undrain")
                .about("Has a node lead again, and stay")
                .arg(node),
        ))
        .subcommands(starters())
        .subcommand(recover())
        .subcommand(create())
}

fn for_restart() -> Arg {
    Arg::new("for-restart")
        .long("for-restart")
        .action(ArgAction::SetTrue)
        .conflicts_with("node")
        .help("Stay in it: the server that is asked gives away what it leads, until it is started anew")
}

/// Returns the words that start a server of a group: the kind of node is their first option.
fn starters() -> [Command; 2] {
    let host = || {
        Arg::new("host")
            .value_name("HOST[:PORT[@LINK_PORT]]")
            .required(true)
            .help("Any node of the group")
    };
    let options = || {
        Arg::new("options")
            .value_name("--directive value")
            .num_args(0..)
            .allow_hyphen_values(true)
            .trailing_var_arg(true)
            .help("Options of the server")
    };
    let starter = |name, about| Command::new(name).about(about).args([host(), options()]);
    [
        starter(
            "join",
            "Starts a server that joins a group: iolite --join HOST",
        ),
        starter(
            "witness",
            "Starts one that votes and keeps no data: iolite --witness yes --join HOST",
        ),
    ]
}

/// Converts `cluster join HOST …` and `cluster witness HOST …` to options of the server; `None` if
/// it is neither.
pub(super) fn as_server(options: &[OsString]) -> Option<Vec<OsString>> {
    let [first, second, host, rest @ ..] = options else {
        return None;
    };
    let is_place = host.to_str().is_some_and(|host| !host.starts_with('-'));
    if first != "cluster" || !is_place {
        return None;
    }
    let mut server: Vec<OsString> = match second.to_str()? {
        "join" => Vec::new(),
        "witness" => ["--witness", "yes"].map(OsString::from).into(),
        _ => return None,
    };
    server.extend([OsString::from("--join"), host.clone()]);
    server.extend(rest.iter().cloned());
    Some(server)
}

fn recover() -> Command {
    Command::new("recover")
        .about("Has a group whose majority is gone for good go on with one node, which is stopped")
        .arg(
            Arg::new("dir")
                .long("dir")
                .value_name("DIR")
                .required(true)
                .value_parser(clap::value_parser!(PathBuf))
                .value_hint(ValueHint::DirPath)
                .help("The node's working directory (dir)"),
        )
        .arg(
            Arg::new("yes")
                .long("yes")
                .action(ArgAction::SetTrue)
                .help("Do it; without this, what may be lost is told, and nothing is changed"),
        )
        .arg(json())
}

fn create() -> Command {
    let nodes = Arg::new("nodes")
        .value_name("HOST:PORT[@LINK_PORT]")
        .num_args(1..)
        .required(true)
        .help("The nodes: in cluster mode, by themselves, empty");
    let replicas = Arg::new("replicas")
        .long("replicas")
        .value_name("N")
        .default_value("0")
        .value_parser(value_parser!(usize))
        .help("So many of each primary");
    let create = Command::new("create").about("Makes a cluster of nodes that are by themselves");
    let create = asking(create.arg(nodes).arg(replicas));
    // Their own words name the nodes.
    ["-h", "-p", "-s", "-u", "-n"]
        .into_iter()
        .fold(create, |create, id| {
            create.mut_arg(id, |arg| arg.hide(true))
        })
}

/// Adds the options that select the server: those of all tools. The long words are those of earlier
/// versions.
fn asking(command: Command) -> Command {
    command
        .disable_help_flag(true)
        .arg(json())
        .args(arguments())
        .mut_arg("-h", |arg| arg.short_alias('H').alias("host"))
        .mut_arg("-p", |arg| arg.alias("port"))
        .mut_arg("-a", |arg| arg.alias("password"))
}

fn export() -> Command {
    Command::new("export")
        .about("Writes the data of --dir as an RDB file, or as a log for Redis")
        .override_usage(
            "iolite export FILE.rdb [--rdb-version N] [--json] [--dir DIR] [options of the server]\n       \
                     iolite export --aof DIR [--json] [--dir DIR] [options of the server]",
        )
        .arg(
            Arg::new("aof")
                .long("aof")
                .action(ArgAction::SetTrue)
                .help("A directory as Redis has with appendonly, instead of an RDB file"),
        )
        .arg(
            Arg::new("rdb-version")
                .long("rdb-version")
                .value_name("N")
                .value_parser(ValueParser::os_string())
                .help("The version of the format: 9 to 12"),
        )
        .arg(json())
        .arg(rest("words", "FILE"))
}

/// Returns the commands that print files for other programs.
fn printers() -> [Command; 2] {
    [
        Command::new("completions")
            .about("Prints the completions of a shell")
            .arg(
                Arg::new("shell")
                    .value_name("SHELL")
                    .required(true)
                    .value_parser(value_parser!(Shell)),
            ),
        Command::new("man")
            .about("Prints a page of the manual, as in: iolite man | man -l -")
            .arg(
                Arg::new("command")
                    .value_name("COMMAND")
                    .num_args(0..)
                    .help("Of which command, as in: iolite man cluster status; else of all"),
            ),
    ]
}

fn files() -> Arg {
    Arg::new("files")
        .value_name("FILE")
        .required(true)
        .num_args(1..)
        .value_parser(value_parser!(PathBuf))
        .value_hint(ValueHint::AnyPath)
        .help("What to verify: a checkpoint, a segment of the log, an RDB file, a directory")
}

/// Returns an argument for words that are passed on unchanged.
fn rest(id: &'static str, name: &'static str) -> Arg {
    Arg::new(id)
        .value_name(name)
        .num_args(0..)
        .trailing_var_arg(true)
        .allow_hyphen_values(true)
        .value_parser(ValueParser::os_string())
        .value_hint(ValueHint::AnyPath)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn told(words: &[&str]) -> Result<Option<String>, String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        match read(&words) {
            Ok(Some(Invocation::Print { text, code: 0 })) => Ok(Some(text)),
            Ok(Some(other)) => Ok(Some(format!("{other:?}"))),
            Ok(None) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn the_words_fit_together() {
        command().debug_assert();
        let mut all = command();
        all.build();
        let names = all.get_subcommands().map(Command::get_name);
        let mut names: Vec<&str> = names
            .filter(|name| tool::Tool::by_word(name).is_none())
            .collect();
        names.sort_unstable();
        assert_eq!(names, WORDS);
    }

    #[test]
    fn every_tool_tells_what_it_takes() {
        for word in ["check", "doctor", "import", "export", "completions", "man"] {
            // In tools that connect to a server, -h is its host.
            let short = if word == "doctor" { "--help" } else { "-h" };
            for words in [[word, "--help"], [word, short], ["help", word]] {
                let text = told(&words).unwrap().unwrap();
                assert!(text.contains(&format!("Usage: iolite {word}")), "{text}");
            }
            let page = told(&["man", word]).unwrap().unwrap();
            assert!(page.contains(&format!("iolite\\-{word}")), "{page}");
        }
        assert!(
            told(&["check"])
                .unwrap_err()
                .contains("Usage: iolite check")
        );
        assert!(told(&["man", "chekc"]).unwrap_err().contains("'check'"));
        assert!(told(&["man"]).unwrap().unwrap().contains(".SH"));
    }

    /// Returns the options of a command as they are typed; with `has_hidden`, also those that no
    /// page shows.
    fn options_of(command: &Command, has_hidden: bool) -> BTreeSet<String> {
        let mut words = BTreeSet::new();
        let is_meant = |arg: &&Arg| has_hidden || !arg.is_hide_set();
        for arg in command.get_arguments().filter(is_meant) {
            let shorts = arg.get_short_and_visible_aliases().unwrap_or_default();
            words.extend(shorts.iter().map(|short| format!("-{short}")));
            let longs = arg.get_long_and_visible_aliases().unwrap_or_default();
            words.extend(longs.iter().map(|long| format!("--{long}")));
        }
        words
    }

    /// Returns all commands except `help`, with the words that name them.
    fn all(command: &Command, words: &[&str], found: &mut Vec<(Vec<String>, Command)>) {
        for one in command.get_subcommands() {
            if one.get_name() == "help" {
                continue;
            }
            let words = [words, &[one.get_name()]].concat();
            let owned = words.iter().map(|word| (*word).to_owned()).collect();
            found.push((owned, one.clone()));
            all(one, &words, found);
        }
    }

    #[test]
    fn shells_and_pages_know_what_the_commands_take() {
        let mut whole = command();
        whole.build();
        let mut commands = Vec::new();
        all(&whole, &[], &mut commands);
        let script = told(&["completions", "bash"]).unwrap().unwrap();
        for (words, command) in commands {
            // In the script, the words of a command follow its label.
            let label = format!("        iolite__subcmd__{})\n", words.join("__subcmd__"));
            let (_, part) = script
                .split_once(&label)
                .unwrap_or_else(|| panic!("{label}"));
            let (_, part) = part.split_once("opts=\"").unwrap();
            let (completed, _) = part.split_once('"').unwrap();
            let completed = completed.split(' ').filter(|word| word.starts_with('-'));
            let completed: BTreeSet<String> = completed.map(str::to_owned).collect();
            assert_eq!(completed, options_of(&command, true), "{words:?}");
            let mut asked = vec!["man"];
            asked.extend(words.iter().map(String::as_str));
            let page = told(&asked).unwrap().unwrap().replace("\\-", "-");
            for option in options_of(&command, false) {
                assert!(
                    page.contains(&format!("\\fB{option}\\fR")),
                    "{words:?} {option}: {page}"
                );
            }
        }
    }

    #[test]
    fn shells_complete_the_words() {
        for shell in ["bash", "zsh", "fish"] {
            let script = told(&["completions", shell]).unwrap().unwrap();
            assert!(script.contains("export"), "{script}");
        }
        assert!(told(&["completions", "none"]).unwrap_err().contains("bash"));
    }

    #[test]
    fn what_is_the_servers_is_left_to_it() {
        for words in [
            &["export", "--dir", "/data", "a.rdb", "--rdb-version", "10"][..],
            &["export", "--aof", "copy", "--dir", "/data"],
            &["export", "a.rdb", "--rdb-version", "x"],
            &["import", "a.rdb", "a.conf", "--port", "1"],
            &["import", "--json", "a.rdb"],
            &["export", "a.rdb", "--json", "--dir", "/data"],
            &["bench", "--help"],
            &["./check", "a"],
            &["--port", "1"],
            &[],
        ] {
            assert_eq!(told(words), Ok(None), "{words:?}");
        }
        let checked = told(&["check", "a", "b"]).unwrap().unwrap();
        assert_eq!(checked, r#"Check { files: ["a", "b"], is_json: false }"#);
    }
}
