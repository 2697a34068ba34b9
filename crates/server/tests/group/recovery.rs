//! Tests of a majority that is lost for good: `iolite cluster recover` lets a group continue with
//! one node.

use std::process::Command;

use testkit::process::iolite_program;

use crate::{Node, has, three_with, wait_until, writes};

fn recover(node: &Node, more: &[&str]) -> (i32, String) {
    let directory = node.directory.join("");
    let mut command = Command::new(iolite_program());
    command
        .args(["cluster", "recover", "--dir"])
        .arg(directory)
        .args(more);
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[test]
fn a_group_goes_on_with_one_node_and_refuses_those_of_before() {
    // Two of three nodes return, and wait this long for the third.
    let mut nodes = three_with(&["--cluster-recovery-wait", "2000"]);
    assert!(writes(&nodes[0], "before"));
    let all: Vec<&Node> = nodes.iter().collect();
    wait_until("copied", &all, || {
        nodes.iter().all(|node| has(node, "before"))
    });
    let (code, told) = recover(&nodes[1], &["--yes"]);
    assert!(code == 2 && told.contains("iolite-data"), "it runs: {told}");
    for node in &mut nodes {
        node.kill();
    }
    // At first the command only reports, and changes nothing.
    let (code, told) = recover(&nodes[1], &[]);
    assert_eq!(code, 1, "{told}");
    for part in [
        "What may be lost",
        &nodes[0].address(),
        &nodes[2].address(),
        "--yes",
    ] {
        assert!(told.contains(part), "{part} in {told}");
    }
    let (code, json) = recover(&nodes[1], &["--json"]);
    assert!(code == 1 && json.contains(r#""done":false"#), "{json}");
    let (code, told) = recover(&nodes[1], &["--yes"]);
    assert!(code == 0 && told.contains("Done"), "{told}");
    nodes[1].start();
    wait_until("it goes on alone", &[&nodes[1]], || {
        writes(&nodes[1], "alone")
    });
    assert!(has(&nodes[1], "before"));
    assert_eq!(nodes[1].field("control_nodes"), "1");
    // The former majority returns after all. Both nodes belong to another group, and neither
    // changes anything here.
    nodes[0].start();
    nodes[2].start();
    let [first, second, third] = &nodes;
    wait_until("they go on by themselves", &[first, second, third], || {
        [first, third].iter().any(|node| writes(node, "apart"))
    });
    wait_until("refused", &[first, second, third], || {
        second
            .log()
            .contains("is refused: it is of incarnation 0 of the control group, and this node of 1")
    });
    assert!(writes(second, "still") && !has(second, "apart"));
    assert_eq!(second.field("control_nodes"), "1");
    assert!(!has(first, "alone") && !has(third, "alone"));
    // With an empty directory, a node joins the recovered one.
    let fourth = Node::joining(second, &[]);
    wait_until("a replica", &[second, &fourth], || fourth.is_synced());
    assert!(has(&fourth, "alone"));
    assert_eq!(second.field("control_nodes"), "2");
}
