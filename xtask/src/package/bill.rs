//! The bill of materials: the libraries in the binary, with versions, licences, checksums and
//! dependencies, as CycloneDX 1.6. Scanners for known vulnerabilities read it. It is made from
//! `Cargo.lock` and from what cargo knows. The same lock file gives the same bytes, so the bill has
//! no time and no serial number.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::Package;
use super::files::{Outcome, output, read, write};
use super::target::Target;
use crate::workspace_root;

/// Path of the bill on a machine.
pub(super) const PATH: &str = "usr/share/doc/iolite/iolite.cdx.json";

/// A library or a room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Part {
    name: String,
    version: String,
    licence: String,
    source: String,
    /// Whether it belongs to this repository.
    is_own: bool,
    /// Its dependencies, by name and version.
    needs: BTreeSet<String>,
}

/// Writes the bill into the tree, and next to the packages.
pub(super) fn make(package: &Package, tree: &Path) -> Outcome<()> {
    let parts = parts(&dependency_tree(package.target)?);
    let sums = sums(&read(&workspace_root().join("Cargo.lock"))?);
    let text = bill(&package.version, &parts, &sums);
    write(&tree.join(PATH), &text)?;
    write(
        &package
            .out
            .join(format!("iolite-{}.cdx.json", package.version)),
        &text,
    )
}

/// Returns the dependencies of the binary, one package per line, for [`parts`].
fn dependency_tree(target: Target) -> Outcome<String> {
    let triple = target.triple("gnu");
    let words = [
        "tree",
        "--target",
        &triple,
        "--locked",
        "--package",
        "server",
        "--edges",
        "normal",
        "--prefix",
        "depth",
        "--format",
        "|{p}|{l}|{r}",
    ];
    output(&mut crate::parts::cargo(&words))
}

/// Returns the parts by name and version, from the lines of a tree: depth, package, licence,
/// source.
fn parts(tree: &str) -> BTreeMap<String, Part> {
    let mut parts: BTreeMap<String, Part> = BTreeMap::new();
    let mut above: Vec<String> = Vec::new();
    for line in tree.lines() {
        let mut cells = line.split('|');
        let (Some(depth), Some(package)) = (cells.next(), cells.next()) else {
            continue;
        };
        let Ok(depth) = depth.parse::<usize>() else {
            continue;
        };
        let mut words = package.split(' ');
        let name = words.next().unwrap_or_default();
        let version = words.next().unwrap_or_default().trim_start_matches('v');
        let key = format!("{name}@{version}");
        above.truncate(depth);
        if let Some(parent) = above.last().and_then(|parent| parts.get_mut(parent)) {
            parent.needs.insert(key.clone());
        }
        above.push(key.clone());
        let part = parts.entry(key).or_default();
        name.clone_into(&mut part.name);
        version.clone_into(&mut part.version);
        part.is_own = package.contains("(/");
        cells
            .next()
            .unwrap_or_default()
            .clone_into(&mut part.licence);
        let source = cells.next().unwrap_or_default();
        source
            .trim_end_matches(" (*)")
            .trim()
            .clone_into(&mut part.source);
    }
    parts
}

/// Returns the checksums of packages in a lock file, by name and version.
fn sums(lock: &str) -> BTreeMap<String, String> {
    let mut sums = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let field = |name: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(name));
            line.map(|rest| rest.trim_start_matches(" = ").trim_matches('"'))
        };
        if let (Some(name), Some(version), Some(sum)) =
            (field("name"), field("version"), field("checksum"))
        {
            sums.insert(format!("{name}@{version}"), sum.to_owned());
        }
    }
    sums
}

fn bill(version: &str, parts: &BTreeMap<String, Part>, sums: &BTreeMap<String, String>) -> String {
    let components: Vec<String> = parts
        .iter()
        .filter(|(_, part)| !part.is_own)
        .map(|(key, part)| component(key, part, sums.get(key)))
        .collect();
    // Rooms are the product itself: a dependency of any room is a dependency of the product.
    let direct = parts.values().filter(|part| part.is_own);
    let direct: BTreeSet<&String> = direct.flat_map(|part| &part.needs).collect();
    let direct = direct.into_iter().filter(|key| is_foreign(parts, key));
    let mut dependencies = vec![needs(&format!("iolite@{version}"), direct)];
    for (key, part) in parts.iter().filter(|(_, part)| !part.is_own) {
        dependencies.push(needs(&url(key), part.needs.iter()));
    }
    format!(
        "{{\"bomFormat\":\"CycloneDX\",\"specVersion\":\"1.6\",\"version\":1,\"metadata\":{{\"component\":{{\
         \"type\":\"application\",\"bom-ref\":\"iolite@{version}\",\"name\":\"iolite\",\"version\":\"{version}\",\
         \"licenses\":[{{\"expression\":\"MIT OR Apache-2.0\"}}]}}}},\n\"components\":[\n{}\n],\n\"dependencies\":[\n{}\n]}}\n",
        components.join(",\n"),
        dependencies.join(",\n")
    )
}

fn is_foreign(parts: &BTreeMap<String, Part>, key: &str) -> bool {
    parts.get(key).is_some_and(|part| !part.is_own)
}

fn component(key: &str, part: &Part, sum: Option<&String>) -> String {
    let mut fields = vec![
        "\"type\":\"library\"".to_owned(),
        format!("\"bom-ref\":{}", quoted(&url(key))),
        format!("\"name\":{}", quoted(&part.name)),
        format!("\"version\":{}", quoted(&part.version)),
        format!("\"purl\":{}", quoted(&url(key))),
    ];
    if let Some(sum) = sum {
        fields.push(format!(
            "\"hashes\":[{{\"alg\":\"SHA-256\",\"content\":{}}}]",
            quoted(sum)
        ));
    }
    if !part.licence.is_empty() {
        // A `/` in an old expression means OR.
        let licence = part.licence.replace('/', " OR ");
        fields.push(format!(
            "\"licenses\":[{{\"expression\":{}}}]",
            quoted(&licence)
        ));
    }
    if !part.source.is_empty() {
        let source = quoted(&part.source);
        fields.push(format!(
            "\"externalReferences\":[{{\"type\":\"vcs\",\"url\":{source}}}]"
        ));
    }
    format!("{{{}}}", fields.join(","))
}

fn needs<'k>(key: &str, needed: impl Iterator<Item = &'k String>) -> String {
    let needed: Vec<String> = needed.map(|key| quoted(&url(key))).collect();
    format!(
        "{{\"ref\":{},\"dependsOn\":[{}]}}",
        quoted(key),
        needed.join(",")
    )
}

/// Returns the package name in the form that scanners know.
fn url(key: &str) -> String {
    format!("pkg:cargo/{key}")
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => {}
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "0|server v0.1.0 (/a/crates/server)|MIT OR Apache-2.0|\n\
        1|base v0.1.0 (/a/crates/base)|MIT OR Apache-2.0|\n\
        2|libc v0.2.1|MIT/Apache-2.0|https://example.org/libc\n\
        1|clap v4.0.0|MIT|https://example.org/clap\n\
        2|libc v0.2.1|MIT/Apache-2.0|https://example.org/libc (*)\n\
        2|derive v1.0.0 (proc-macro)|MIT|\n";
    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"libc\"\nversion = \"0.2.1\"\nchecksum = \"abc\"\n\n\
        [[package]]\nname = \"base\"\nversion = \"0.1.0\"\n";

    #[test]
    fn libraries_are_named_once_with_what_they_need() {
        let parts = parts(TREE);
        assert_eq!(parts.len(), 5);
        assert!(parts["base@0.1.0"].is_own);
        assert_eq!(parts["libc@0.2.1"].source, "https://example.org/libc");
        let needed: Vec<&String> = parts["clap@4.0.0"].needs.iter().collect();
        assert_eq!(needed, ["derive@1.0.0", "libc@0.2.1"]);
        let text = bill("0.1.0", &parts, &sums(LOCK));
        assert!(text.contains("\"purl\":\"pkg:cargo/libc@0.2.1\",\"hashes\":[{\"alg\":\"SHA-256\",\"content\":\"abc\"}]"));
        assert!(text.contains("\"expression\":\"MIT OR Apache-2.0\""));
        let direct = "{\"ref\":\"iolite@0.1.0\",\"dependsOn\":[\"pkg:cargo/clap@4.0.0\",\"pkg:cargo/libc@0.2.1\"]}";
        assert!(text.contains(direct), "{text}");
        assert!(!text.contains("pkg:cargo/base"));
    }

    /// Checked on the current lock file: every library has a checksum and a licence.
    #[test]
    fn every_library_of_the_binary_has_a_sum() {
        let sums = sums(&read(&workspace_root().join("Cargo.lock")).unwrap());
        let parts = parts(&dependency_tree(Target::own()).unwrap());
        assert!(parts.len() > 50, "{}", parts.len());
        for (key, part) in parts.iter().filter(|(_, part)| !part.is_own) {
            assert!(sums.contains_key(key), "{key}");
            assert!(!part.licence.is_empty(), "{key}");
        }
    }
}
