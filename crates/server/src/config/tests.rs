//! Tests of the configuration as a whole.

mod durability;
mod load;
mod properties;
mod reference;
mod rewrite;
mod shared;
mod stock;
mod table;

use std::ffi::OsString;

use super::{Loader, Origin, Settings, SharedConfig};

/// Returns the settings that `text` makes, or the text of the error.
fn load(text: &str) -> Result<Settings, String> {
    let mut loader = Loader::new();
    let read = loader.read_text(text.as_bytes());
    read.and_then(|()| loader.finish())
        .map(|loaded| loaded.settings)
        .map_err(|error| error.to_string())
}

fn shared(text: &str) -> SharedConfig {
    SharedConfig::new(load(text).unwrap(), Origin::default())
}

/// Returns the value of one directive.
fn value_of(config: &SharedConfig, name: &str) -> String {
    let values = get(config, &[name]);
    assert_eq!(values.len(), 1, "{name}: {values:?}");
    values[0].1.clone()
}

fn get(config: &SharedConfig, patterns: &[&str]) -> Vec<(String, String)> {
    let patterns: Vec<&[u8]> = patterns.iter().map(|pattern| pattern.as_bytes()).collect();
    let mut found = Vec::new();
    config.get(&patterns, &mut |name, value| {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        found.push((text(name), text(value)));
    });
    found
}

/// Sets `pairs` with a runtime that applies everything. Returns the error's text.
fn set(config: &SharedConfig, pairs: &[(&str, &str)]) -> Result<(), String> {
    let pairs: Vec<(&[u8], &[u8])> = pairs
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
        .collect();
    config
        .set(&pairs, false, &mut |_| Ok(()))
        .map_err(|error| error.to_string())
}

fn variables(pairs: &[(&str, &str)]) -> impl Iterator<Item = (OsString, OsString)> {
    let pairs: Vec<_> = pairs
        .iter()
        .map(|(name, value)| (OsString::from(name), OsString::from(value)))
        .collect();
    pairs.into_iter()
}
