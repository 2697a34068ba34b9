//! Tests of the command line.

use super::*;

fn line(options: &[&str]) -> CommandLine {
    let options: Vec<OsString> = options.iter().map(OsString::from).collect();
    CommandLine::read(&options)
}

fn lines(options: &[&str]) -> String {
    String::from_utf8(line(options).lines).unwrap()
}

/// Reads a command line (without the program's name), an environment and a standard input.
fn start(
    options: &[&str],
    environment: &[(&str, &str)],
    mut stdin: &[u8],
) -> Result<Invocation, String> {
    let program = ["/usr/bin/redis-server"];
    let arguments = program.iter().chain(options).map(OsString::from).collect();
    let environment = environment
        .iter()
        .map(|(name, value)| (OsString::from(name), OsString::from(value)));
    read(arguments, environment, &mut stdin).map_err(|error| error.to_string())
}

fn startup(options: &[&str], environment: &[(&str, &str)], stdin: &[u8]) -> Startup {
    match start(options, environment, stdin).unwrap() {
        Invocation::Serve(startup) => *startup,
        other => panic!("{other:?}"),
    }
}

fn printed(options: &[&str]) -> (String, u8) {
    match start(options, &[], b"").unwrap() {
        Invocation::Print { text, code } => (text, code),
        other => panic!("{other:?}"),
    }
}

#[test]
fn options_become_lines() {
    assert_eq!(
        lines(&["--port", "7777", "--bind", "a", "b"]),
        "port \"7777\" \nbind \"a\" \"b\" "
    );
    assert_eq!(
        lines(&["--save", "", "--port", "1"]),
        "save \"\" \nport \"1\" "
    );
    assert_eq!(lines(&["--save", "--port", "1"]), "save \"\"\nport \"1\" ");
    assert_eq!(lines(&["--port", "1", "--SAVE"]), "port \"1\" \nSAVE \"\"");
    assert_eq!(
        lines(&["--port 7", "--maxmemory 1gb"]),
        "port 7 \nmaxmemory 1gb "
    );
    assert_eq!(
        lines(&["--requirepass", "--secret"]),
        "requirepass \"--secret\" "
    );
    assert_eq!(lines(&["-foo"]), "\"-foo\" ");
}

#[test]
fn the_first_argument_may_be_a_file_and_a_dash_is_standard_input() {
    let read = line(&["/etc/a.conf", "--port", "1", "-"]);
    assert_eq!(read.file.as_deref(), Some(Path::new("/etc/a.conf")));
    assert!(read.reads_stdin);
    assert!(line(&["-"]).reads_stdin);
    assert!(line(&["-", "--port", "1"]).reads_stdin);
    assert!(!line(&["--requirepass", "-", "--port", "1"]).reads_stdin);
    assert!(line(&["relative.conf"]).file.unwrap().is_absolute());
}

#[test]
fn what_is_read_later_wins() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("iolite.conf");
    std::fs::write(&path, "timeout 2\ntcp-keepalive 2\nhz 2").unwrap();
    let environment = [
        ("IOLITE_MAXCLIENTS", "1"),
        ("IOLITE_TIMEOUT", "1"),
        ("IOLITE_TCP_KEEPALIVE", "1"),
        ("IOLITE_HZ", "1"),
    ];
    let stdin = b"\ntcp-keepalive 3\nhz 3\n";
    let options = [path.to_str().unwrap(), "--hz", "4", "-"];
    let config = startup(&options, &environment, stdin).settings.config();
    assert_eq!(config.clients_max, 1);
    assert_eq!(config.idle_timeout_s, 2);
    assert_eq!(config.tcp_keepalive_s, 3);
    assert_eq!(config.hz, 4);
    assert_eq!(config.databases_count, 16);
}

#[test]
fn the_usual_start_of_a_cache_works() {
    let options = [
        "--port",
        "7777",
        "--save",
        "",
        "--appendonly",
        "no",
        "--threads",
        "4",
    ];
    let started = startup(&options, &[], b"");
    let config = started.settings.config();
    assert_eq!((config.port, config.threads_count), (7777, 4));
    assert_eq!(started.origin.file, None);
    assert_eq!(started.origin.arguments.len(), 9);
    assert!(
        started.remarks[0].contains("/usr/bin/redis-server /path/to"),
        "{:?}",
        started.remarks
    );
}

#[test]
fn faults_of_options_are_told_of_the_command_line() {
    let told = start(&["--port", "abc"], &[], b"").unwrap_err();
    assert!(
        told.contains("the command line\n>>> 'port \"abc\"'\n"),
        "{told}"
    );
    let told = start(&["--port 7995", "--databases", "0"], &[], b"").unwrap_err();
    assert!(
        told.contains("the command line\n>>> 'databases \"0\"'\n"),
        "{told}"
    );
    let told = start(&["--port"], &[], b"").unwrap_err();
    assert!(
        told.ends_with(">>> 'port'\nwrong number of arguments"),
        "{told}"
    );
    let told = start(&["-"], &[], b"port x\n").unwrap_err();
    assert!(told.contains("at line 1\n>>> 'port x'\n"), "{told}");
    for (word, near) in [
        ("NONSENSE", ""),
        ("chekc", " The nearest command is 'check'."),
    ] {
        let told = start(&[word], &[], b"").unwrap_err();
        let expected =
            format!("'{word}' is neither a command nor a configuration file that is here.{near}\n");
        assert!(told.starts_with(&expected), "{told}");
    }
    let told = start(&["/does/not/exist.conf"], &[], b"").unwrap_err();
    assert!(told.ends_with("No such file or directory"), "{told}");
}

#[test]
fn questions_are_answered_without_a_server() {
    assert_eq!(printed(&["-v"]), (identity::version_line(), 0));
    assert_eq!(printed(&["--version", "--port", "x"]).1, 0);
    assert_eq!(printed(&["help"]), printed(&["--help"]));
    assert!(
        printed(&["check", "--help"])
            .0
            .contains("Usage: iolite check")
    );
    let (usage, code) = printed(&["--help"]);
    assert!(
        usage.starts_with("Usage: redis-server [/path/to/iolite.conf]"),
        "{usage}"
    );
    assert_eq!(code, 0);
    assert!(usage.contains(" cluster COMMAND"), "{usage}");
    assert!(printed(&["--check-system"]).0.contains("[open-files]..."));
    let told = start(&["--test-memory", "100"], &[], b"").unwrap_err();
    assert!(told.starts_with("Iolite has no memory test."), "{told}");
}

#[test]
fn a_tool_is_a_word_or_a_name_away() {
    let words = |arguments: &[&str]| {
        let arguments = arguments.iter().map(OsString::from).collect();
        match read(arguments, std::iter::empty(), &mut std::io::empty()).unwrap() {
            Invocation::Tool(tool, words) => Some((tool, words)),
            _ => None,
        }
    };
    let bench = (tool::Tool::Bench, vec!["-t".to_owned(), "get".to_owned()]);
    let expected = Some(bench);
    assert_eq!(words(&["/usr/bin/iolite", "bench", "-t", "get"]), expected);
    assert_eq!(words(&["/usr/bin/iolite-bench", "-t", "get"]), expected);
    let client = Some((tool::Tool::Cli, vec!["ping".to_owned()]));
    assert_eq!(words(&["iolite", "cli", "ping"]), client);
    assert_eq!(words(&["/usr/bin/redis-cli", "ping"]), client);
    assert_eq!(words(&["/usr/bin/redis-server", "--port", "1"]), None);
    assert_eq!(words(&["/usr/bin/iolite", "--port", "1"]), None);
}
