//! Tests of command lines and their meaning.

use super::*;

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn measured(line: &str) -> Options {
    match read(words(line)) {
        Ok(Job::Measure(options)) => options,
        other => panic!("{other:?}"),
    }
}

fn refused(line: &str) -> String {
    read(words(line)).unwrap_err().to_string()
}

#[test]
fn without_words_the_defaults_of_redis_benchmark_hold() {
    let options = measured("");
    assert_eq!(
        options.endpoint.address,
        Address::Tcp("127.0.0.1".to_owned(), 6379)
    );
    assert_eq!(
        (options.connections, options.pipelines),
        (vec![50], vec![1])
    );
    assert_eq!(options.shape.limit, Limit::Requests(100_000));
    assert_eq!(options.shape.value_bytes, ValueBytes::exactly(3));
    assert_eq!(options.tests.len(), 19);
}

#[test]
fn flags_mean_what_they_mean_there() {
    let options = measured(
        "-h ::1 -p 7000 -c 10 -n 5000 -P 16 -d 64 -r 1000000 -t set,get -q --csv --threads 2 \
         -a secret --user bob -3 --dbnum 4 -l --precision 1 -k 1 -e",
    );
    assert_eq!(
        options.endpoint.address,
        Address::Tcp("::1".to_owned(), 7000)
    );
    assert_eq!(
        options.endpoint.credentials,
        Some((Some("bob".to_owned()), "secret".to_owned()))
    );
    assert!(options.endpoint.is_resp3 && options.endpoint.database == 4);
    assert_eq!(
        (options.connections, options.pipelines, options.threads),
        (vec![10], vec![16], vec![2])
    );
    assert_eq!(options.shape.limit, Limit::Requests(5_000));
    assert_eq!(options.shape.key_space, 1_000_000);
    assert!(options.is_quiet && options.is_csv && options.is_endless);
    let names: Vec<&str> = options
        .tests
        .iter()
        .map(|test| test.template.name.as_str())
        .collect();
    assert_eq!(names, ["SET", "GET"]);
    let options = measured("-s /tmp/socket");
    assert_eq!(
        options.endpoint.address,
        Address::Unix("/tmp/socket".into())
    );
    let options = measured("-u redis://bob:secret@example.org:7/3");
    assert_eq!(
        options.endpoint.address,
        Address::Tcp("example.org".to_owned(), 7)
    );
    assert_eq!(options.endpoint.database, 3);
}

#[test]
fn a_command_ends_the_flags() {
    let options = measured("-r 10 -n 20 SET key:__rand_int__ -x EX 10");
    assert_eq!(options.tests.len(), 1);
    assert_eq!(
        options.tests[0].template.name,
        "SET key:__rand_int__ -x EX 10"
    );
    assert_eq!(options.shape.key_space, 10);
}

#[test]
fn lists_ranges_and_units_are_understood() {
    let options = measured(
        "-P 1,16,100 -d 50-149 --cpus 1,4-6 --rate 1.5M --poisson --duration 2.5 --warmup=1 \
         --zipf 0.99 --mix get=8,set=2 -n 10K --duration 3",
    );
    assert_eq!(options.pipelines, [1, 16, 100]);
    assert_eq!(options.shape.value_bytes, ValueBytes { min: 50, max: 149 });
    assert_eq!(options.shape.cpus, [1, 4, 5, 6]);
    assert_eq!(
        options.shape.pace,
        Pace::Open {
            requests_per_second: 1_500_000.0,
            is_random: true
        }
    );
    assert_eq!(options.shape.limit, Limit::Time(Duration::from_secs(3)));
    assert_eq!(options.shape.warm_up, Duration::from_secs(1));
    assert_eq!(options.mix.len(), 2);
}

#[test]
fn servers_to_compare_are_named() {
    let options = measured("--compare redis=127.0.0.1:7001 iolite=/tmp/s --rounds 7 -t get");
    assert_eq!(
        options.compare,
        [
            (
                "redis".to_owned(),
                Address::Tcp("127.0.0.1".to_owned(), 7001)
            ),
            ("iolite".to_owned(), Address::Unix("/tmp/s".into())),
        ]
    );
    assert_eq!(options.rounds, 7);
    assert!(
        matches!(read(words("suite --only a,b")), Ok(Job::Suite(options)) if options.only == ["a", "b"])
    );
    assert!(matches!(read(words("-I -c 10")), Ok(Job::Idle(_))));
}

#[test]
fn a_report_takes_files() {
    let job = read(words("report a.json b.json -o page.html --title x")).unwrap();
    let Job::Report(report) = job else {
        panic!("{job:?}")
    };
    assert_eq!(report.inputs.len(), 2);
    assert_eq!(report.output, Some("page.html".into()));
    assert!(refused("report").contains("<FILES>"));
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    for (line, part) in [
        ("-c 0", "-c: '0' is not a number above 0"),
        ("-P", "a value is required for '-P <N>'"),
        ("-p 70000", "-p: '70000' is not a number"),
        ("--what", "unexpected argument '--what'"),
        ("--thread 2", "a similar argument exists: '--threads'"),
        ("-t nothing", "There is no test 'nothing'"),
        ("-d 9-1", "not a size"),
        ("--ratio 0:0", "not a ratio"),
        (
            "--compare -t",
            "a value is required for '--compare <NAME=ADDRESS>",
        ),
        ("--compare redis", "--compare needs NAME=VALUE"),
        ("-r 100000 --key-bytes 5", "need at least 6 bytes"),
        ("--duration -1", "not an amount"),
    ] {
        let text = refused(line);
        assert!(text.contains(part), "{line}: {text}");
    }
}

#[test]
fn what_is_taken_is_told() {
    command().debug_assert();
    for line in ["--help", "suite --help", "report --help"] {
        let Ok(Job::Print(text)) = read(words(line)) else {
            panic!("{line}")
        };
        assert!(text.contains("Usage: iolite bench"), "{text}");
    }
    let Ok(Job::Print(text)) = read(words("--help")) else {
        panic!("no help")
    };
    for part in [
        "--server-pid <PID>",
        "The load:",
        "Tests: ping_inline",
        "-P <N>",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn the_last_of_contradicting_options_counts_and_a_request_may_follow_servers() {
    let options = measured("--duration 1 -n 10 -c 1 -c 2 --sequential --zipf 0.5");
    assert_eq!(options.shape.limit, Limit::Requests(10));
    assert_eq!(options.connections, [2]);
    assert_eq!(options.shape.key_order, KeyOrder::Zipf { exponent: 0.5 });
    let options = measured("--compare a=127.0.0.1:1 b=127.0.0.1:2 GET key");
    assert_eq!(options.compare.len(), 2);
    assert_eq!(options.tests[0].template.name, "GET key");
}
